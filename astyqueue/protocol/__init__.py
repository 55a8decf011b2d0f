"""How a queue lives in rows: pure steps, which do no input or output and read no clock."""

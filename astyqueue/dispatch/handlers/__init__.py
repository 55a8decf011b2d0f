"""What users give a dispatcher to run: functions, the kind of each, and what is called around them.

- `handler`: a function and its kind (thread, coroutine, process, batch), and how it is called with a delivery.
- `handler_registry`: the handlers of one queue: one for each task, one for the rest, one from a factory.
- `middleware`: what is called around a handler, the first one outermost.
- `import_path`: how a child process finds the function of its parent again.

The builder of a dispatcher registers them. A slot, a coroutine or a child process finds the handler of a delivery in
the registry, through `execution`, and calls it. docs/how-to/handlers.md shows each kind and
what goes around them.
"""

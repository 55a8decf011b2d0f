"""A journal on the local disk: records in pages, read again by time, by sequence or by named cursors.

- `journal`, `reading`: the classes for users. `reader` reads; `persistence` runs a stream through a journal.
- `writer`, `page_writer`: appending, group commits, durability. `retention` removes pages.
- `format`, `index`, `pages`, `cursor`: what is stored. `recovery` finds the end after a crash, `verification` examines.
- `disk`: what is asked of a file system. `source`, `wakeups`: where pages grow, and waking those that wait.
- `codec`, `records`, `settings`: values in and out. `picture`: a page as SVG.

It knows nothing of messages and queues. [The journal](../../docs/explanation/journal.md) has the format.
"""

from astyqueue.journal.codec import BYTES, JSON, UTF8, Codec, TextCodec
from astyqueue.journal.cursor import Cursor
from astyqueue.journal.journal import Journal
from astyqueue.journal.reader import Reader
from astyqueue.journal.reading import ReadOnlyJournal, Stat
from astyqueue.journal.records import Damage, Position, Record
from astyqueue.journal.settings import Durability, WhenFull

__all__ = [
    "BYTES",
    "JSON",
    "UTF8",
    "Codec",
    "Cursor",
    "Damage",
    "Durability",
    "Journal",
    "Position",
    "ReadOnlyJournal",
    "Reader",
    "Record",
    "Stat",
    "TextCodec",
    "WhenFull",
]

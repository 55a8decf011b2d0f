"""A journal on the local disk: records in pages, read again by time, by sequence or by named cursors.

- `journal`, `read_only_journal`: the classes for users. `reader` reads, page after page by
  `page_walk`, and `gaps` finds what is missing. `persisted_stream` runs a stream through a journal.
- `writing`: appending, group commits, durability, and waking those that wait.
- `format`, `pages`, `cursor`: what is stored, and which pages may go. `recovery` finds the end after a crash, and
  examines all of it.
- `disk`: what is asked of a file system. `records`, `settings`: values in and out. `page_drawing`: a page as SVG.

It knows nothing of messages and queues. [The journal](../../docs/explanation/journal.md) has the format.
"""

from astyqueue.journal.cursor import Cursor
from astyqueue.journal.journal import Journal
from astyqueue.journal.read_only_journal import ReadOnlyJournal, Stat
from astyqueue.journal.reader import Reader
from astyqueue.journal.records import BYTES, JSON, UTF8, Codec, Damage, Position, Record, TextCodec
from astyqueue.journal.settings import Durability, WhenFull
from astyqueue.journal_errors import JournalError, JournalFailed, JournalFull, JournalInUse, UndecodableRecord

__all__ = [
    "BYTES",
    "JSON",
    "UTF8",
    "Codec",
    "Cursor",
    "Damage",
    "Durability",
    "Journal",
    "JournalError",
    "JournalFailed",
    "JournalFull",
    "JournalInUse",
    "Position",
    "ReadOnlyJournal",
    "Reader",
    "Record",
    "Stat",
    "TextCodec",
    "UndecodableRecord",
    "WhenFull",
]

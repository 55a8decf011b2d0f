"""Appending to a journal: from the values of many threads to pages on the disk, and to those who wait for records.

- `writer`: one lock around each append, one thread at a time that syncs for all that wait, and an orderly end.
- `writer_state`: whether it may go on, and whether a caller got the error that keeps it from that.
- `page_writer`: packs records into a buffer and writes it to the last page, begins pages, and cuts large records.
- `syncs`: what of all this is on the disk already, and which files the next sync has to reach.
- `batch_timer`: the thread that syncs a batch when its time is over though nothing follows.

An append packs its records under the lock of the writer. What has to be on the disk before it returns waits for a
sync: the thread that begins one syncs for all that appended before. Then it notifies the `Listeners`: the readers of
this process that wait for records, and the appends that wait for room.
[The journal](../../../docs/explanation/journal.md) says what each durability promises.
"""

from astyqueue.journal.writing.writer import Listeners, Writer

__all__ = ["Listeners", "Writer"]

"""What of a journal is on the disk, and which files the next sync has to reach."""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from astyqueue.journal.disk import DiskFile
from astyqueue.journal.pages import Pages
from astyqueue.journal.recovery import OpenPage
from astyqueue.journal.settings import Durability
from astyqueue.journal_errors import JournalFailed


class Unsynced(NamedTuple):
    """What a sync has to reach: finished pages, the open file of the last page, and the last record in them."""

    pages: list[int]
    file: DiskFile | None
    sequence: int


class Syncs:
    """What is synced. Files of finished pages stay open until no thread can be syncing them.

    `synced` is the last record that is on the disk with all before it. Not thread-safe, except `sync`.
    """

    def __init__(self, pages: Pages, durability: Durability, synced: int) -> None:
        """All that is there is on the disk, up to the record `synced`."""
        self.synced = synced
        self._pages: Final = pages
        self._durability: Final = durability
        self._retired: list[DiskFile] = []
        self._unsynced_pages: list[int] = []
        self._made = self._made_durable = 0

    def page_made(self) -> None:
        """Note that the folder has a new file, whose name has to be synced too."""
        self._made += 1

    def finish(self, page: OpenPage, written: int) -> None:
        """Sync a page that ends with the record `written` if the durability says so, and store its index.

        It may be called again: an interrupted thread may not have got to what follows.
        """
        if self._durability is Durability.NONE:
            self._unsynced_pages.append(page.header.number)
        else:
            self.sync_file(page.file)
            self.synced = max(self.synced, written)
        page.index.end = page.at
        self._pages.save_index(page.index)

    def retire(self, file: DiskFile) -> None:
        """Close this file with the next `close_retired`."""
        self._retired.append(file)

    def close_retired(self) -> None:
        """Close the files of finished pages, while no thread syncs."""
        while self._retired:
            self._retired.pop().close()

    def unsynced(self, file: DiskFile | None, sequence: int) -> Unsynced:
        """What is to be synced: the last page, which is open, and those that were finished without a sync."""
        return Unsynced(list(self._unsynced_pages), file, sequence)

    def sync(self, unsynced: Unsynced) -> None:
        """Sync it, without the lock of the writer; JournalFailed if the disk does not."""
        for number in unsynced.pages:
            with contextlib.suppress(FileNotFoundError), contextlib.closing(self._pages.open(number)) as file:
                self.sync_file(file)
        if unsynced.file is not None:
            self.sync_file(unsynced.file)

    def reached(self, unsynced: Unsynced) -> None:
        """Note that all of this was synced."""
        del self._unsynced_pages[: len(unsynced.pages)]
        self.synced = max(self.synced, unsynced.sequence)

    def sync_file(self, file: DiskFile) -> None:
        """Sync a file, and the folder if it has new names; JournalFailed if the disk does not."""
        made = self._made
        try:
            file.sync()
            if made != self._made_durable:
                self._pages.disk.sync_directory(self._pages.directory)
                self._made_durable = made
        except OSError as error:
            raise JournalFailed(str(self._pages.directory), str(error)) from error

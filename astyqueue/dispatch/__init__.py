"""Runs handlers for messages: threads, a bounded backlog, outcomes settled in batches, and an orderly drain."""

from astyqueue.dispatch.dispatcher import Dispatcher

__all__ = ["Dispatcher"]

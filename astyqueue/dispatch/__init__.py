"""Running handlers for messages: threads, a bounded backlog, outcomes in batches, and an orderly end."""

from astyqueue.dispatch.dispatcher import Dispatcher

__all__ = ["Dispatcher"]

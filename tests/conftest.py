"""The shipped conformance suites assert like tests, so pytest rewrites them too: their assertions bite under -O."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("astyqueue.testing")

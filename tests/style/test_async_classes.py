from __future__ import annotations

from pathlib import Path

import pytest

from tools.async_classes.__main__ import main
from tools.async_classes.rewriting import as_coroutines, with_differences
from tools.async_classes.twins import ROOT, TWINS, Twin


def rewritten(body: str) -> str:
    """A class with this body, for tasks."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return as_coroutines(f"class Queue:\n{lines}", awaited={"self.run", "run"}, renamed={"run": "arun"})


def method_of(body: str) -> str:
    """The only method of a class, for tasks, in one line."""
    return " ".join(rewritten(body).split()).removeprefix("class Queue: ")


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.path)
def test_a_committed_module_is_what_is_written_from_the_one_for_threads(twin: Twin) -> None:
    assert (ROOT / twin.path).read_text(encoding="utf-8") == twin.written()


def test_the_check_names_what_is_missing_or_stale_and_writing_it_mends_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for twin in TWINS:
        for path in (twin.path, twin.origin):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / twin.origin).write_text((ROOT / twin.origin).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / TWINS[0].path).write_text("def run(self): ...", encoding="utf-8")
    assert main(["--check"], tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == [f"{twin.path} is not what 'make aio' writes" for twin in TWINS]
    assert main([], tmp_path) == 0
    assert capsys.readouterr().out.splitlines() == [f"wrote {twin.path}" for twin in TWINS]
    assert main(["--check"], tmp_path) == 0
    assert capsys.readouterr().out == ""


def test_a_misspelt_option_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for twin in TWINS:
        for path in (twin.path, twin.origin):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / twin.origin).write_text((ROOT / twin.origin).read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["--chek"], tmp_path) == 2
    assert capsys.readouterr().err.startswith("unknown argument --chek")
    assert not any((tmp_path / twin.path).exists() for twin in TWINS)


def test_a_function_that_calls_what_is_awaited_becomes_a_coroutine() -> None:
    assert method_of("def get(self): return self.run(1)") == "async def get(self): return await self.run(1)"


def test_a_function_that_waits_for_nothing_stays_as_it_is() -> None:
    assert method_of("def name(self): return self.settings.name") == "def name(self): return self.settings.name"


def test_a_method_that_calls_such_a_function_becomes_one_too_wherever_that_is_defined() -> None:
    text = rewritten("def pause(self):\n    self.change()\ndef change(self):\n    self.run(1)")
    assert "    async def pause(self):\n        await self.change()\n" in text


def test_a_method_that_is_handed_on_is_not_awaited() -> None:
    text = rewritten("def take(self):\n    return Received(self.settle)\ndef settle(self):\n    self.run(1)")
    assert "    def take(self):\n        return Received(self.settle)\n" in text


def test_a_generator_is_iterated_and_not_awaited() -> None:
    text = rewritten("def history(self):\n    return self.told()\ndef told(self):\n    yield self.run(1)")
    assert "    def history(self):\n        return self.told()\n" in text
    assert "    async def told(self):\n        yield await self.run(1)\n" in text


@pytest.mark.parametrize("suffix", [".id", "[:2]", "()"])
def test_what_follows_the_call_is_of_its_result(suffix: str) -> None:
    found = method_of(f"def get(self): return self.run(1){suffix}")
    assert found == f"async def get(self): return (await self.run(1)){suffix}"


def test_a_context_manager_is_one_for_async_with() -> None:
    assert method_of("def __enter__(self): return self") == "async def __aenter__(self): return self"


def test_names_are_renamed_and_methods_of_that_name_are_not() -> None:
    assert (
        method_of("def run(self, steps): return run(steps)") == "async def run(self, steps): return await arun(steps)"
    )


def test_text_beside_letters_that_take_several_bytes_is_changed_at_its_place() -> None:
    assert method_of("def get(self): return 'é…', self.run(1)") == "async def get(self): return 'é…', await self.run(1)"


def test_comments_and_docstrings_stay() -> None:
    body = 'def get(self):\n    """One."""\n    return self.run(1)  # why'
    assert rewritten(body).endswith('    """One."""\n        return await self.run(1)  # why\n')


def test_a_difference_replaces_whole_words() -> None:
    assert with_differences("Store, AsyncStore, Stored", {"Store": "Shop"}, of="queue.py") == "Shop, AsyncStore, Stored"


def test_a_difference_that_is_nowhere_is_an_error() -> None:
    with pytest.raises(LookupError, match="'for threads' is nowhere in queue"):
        with_differences("for tasks", {"for threads": "for tasks"}, of="queue.py")

"""`python -m tests.style.architecture`: draws docs/architecture.svg from the imports, and lists packages and modules.

The rows of the picture are the layers that import-linter enforces (pyproject.toml). A box is a module or package of
`astyqueue`, with the number of its Python files; `queue` and `protocol` show the packages inside them. An arrow is an
import, left out where another path of arrows says the same.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "docs" / "architecture.svg"
PAGE: Final = ROOT / "docs" / "architecture.md"
MODULES: Final = ROOT / "docs" / "reference" / "modules.md"
PACKAGE: Final = "astyqueue"
#: Shown with the packages inside them, in the order of their own layers.
OPENED: Final = ("queue", "protocol")

_WIDTH: Final = 800
_MARGIN: Final = 24
_TOP: Final = 64
_BOX: Final = 44
_GAP: Final = 40
_INNER: Final = 36
_WIDEST: Final = 150  # so that arrows to lower layers can be seen between the boxes
_MODULES_HEAD: Final = """\
# Modules

Every module of `astyqueue`, package by package, with the first sentence of its docstring.
[Architecture](../architecture.md) shows how the packages fit together. Written by `python -m tests.style.architecture`.
"""
_TITLE: Final = "Packages and modules of astyqueue: each imports only from rows below its own"
_STYLE: Final = """
    text { font-family: "DejaVu Sans", Verdana, Arial, sans-serif; fill: #1d2530; font-size: 13px; }
    text { text-anchor: middle; }
    .title { font-size: 15px; font-weight: bold; text-anchor: start; }
    .files { font-size: 12px; fill: #5a6472; }
    .package { fill: #dfeaf7; stroke: #1f5fa8; stroke-width: 1.4; }
    .opened { fill: #fdf3e1; stroke: #a34a00; stroke-width: 1.4; }
    .inner { fill: #fbfaf6; stroke: #a34a00; stroke-width: 1; }
    .import { stroke: #39424e; stroke-width: 1; fill: none; opacity: 0.55; marker-end: url(#head); }
  """


@dataclass(frozen=True)
class Box:
    """A package of the picture: its name, its number of files, and where it is drawn."""

    name: str
    files: int
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def layers(container: str = PACKAGE) -> list[list[str]]:
    """The packages of each layer of a package, the highest first, as pyproject.toml has them."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in config["tool"]["importlinter"]["contracts"]:
        if container in contract.get("containers", ()):
            rows = ([name.strip("() ") for name in layer.split("|")] for layer in contract["layers"])
            return [names for row in rows if (names := [name for name in row if name != "__main__"])]
    message = f"no contract of pyproject.toml says the layers of {container}"
    raise LookupError(message)


def imports() -> dict[str, set[str]]:
    """Which package imports which others, without those that another way through the packages implies."""
    graph, direct = grimp.build_graph(PACKAGE), defaultdict[str, set[str]](set)
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            importer, imported = _package(module), _package(other)
            if importer and imported and importer != imported:
                direct[importer].add(imported)
    below = {package: _reachable(package, direct) for package in direct}
    return {
        package: {one for one in others if not any(one in below.get(other, ()) for other in others - {one})}
        for package, others in direct.items()
    }


def _package(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def _reachable(package: str, direct: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = [*direct[package]]
    while left:
        if (one := left.pop()) not in found:
            found.add(one)
            left += direct.get(one, ())
    return found


def boxes() -> list[Box]:
    """Every package with its place, row by row; the packages inside a package directly after it."""
    found, top = [], float(_TOP)
    for names in layers():
        height = float(_BOX) if not set(names) & set(OPENED) else _BOX + _INNER * 1.4
        share = (_WIDTH - 2 * _MARGIN) / len(names)
        width = share if set(names) & set(OPENED) else min(share - 16, _WIDEST)
        for position, name in enumerate(names):
            middle = _MARGIN + (position + 0.5) * share
            package = Box(name, _files(name), middle - width / 2, top, width, height)
            found += [package, *(_inside(package) if name in OPENED else ())]
        top += height + _GAP
    return found


def _inside(package: Box) -> Iterator[Box]:
    names = [name for row in reversed(layers(f"{PACKAGE}.{package.name}")) for name in row]
    packages = [name for name in names if (ROOT / PACKAGE / package.name / name).is_dir()]
    width = (package.width - 16 - 8 * (len(packages) - 1)) / len(packages)
    for position, name in enumerate(packages):
        x = package.x + 8 + position * (width + 8)
        yield Box(name, _files(f"{package.name}/{name}"), x, package.y + package.height - _INNER - 8, width, _INNER)


def _files(package: str) -> int:
    folder = ROOT / PACKAGE / package
    return sum(1 for _ in folder.rglob("*.py")) if folder.is_dir() else 1


def drawn() -> str:
    """The picture, as the text of an SVG file."""
    packages = boxes()
    height = round(max(box.y + box.height for box in packages) + _MARGIN)
    arrows = "\n".join(_arrows({box.name: box for box in packages}))
    drawn_boxes = "\n".join(line for box in packages for line in _box(box))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"
  width="{_WIDTH}" height="{height}" role="img" aria-labelledby="title description">
  <title id="title">The packages of astyqueue and what they import</title>
  <desc id="description">Rows are layers: a package imports only from rows below its own.
  Made from the imports by python -m tests.style.architecture.</desc>
  <defs>
    <marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
      <path d="M0 0 L10 5 L0 10 z" fill="#39424e"/>
    </marker>
  </defs>
  <style>{_STYLE}</style>
  <rect x="1" y="1" width="{_WIDTH - 2}" height="{height - 2}" rx="10" fill="#fbfaf6" stroke="#c9c6bb"/>
  <text class="title" x="{_MARGIN}" y="36">{_TITLE}</text>
{arrows}
{drawn_boxes}
</svg>
"""


def _box(box: Box) -> Iterator[str]:
    inner = box.height == _INNER
    kind = "opened" if box.name in OPENED else "inner" if inner else "package"
    place = f'x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}"'
    yield f'  <rect class="{kind}" {place} rx="6"/>'
    name = box.y + (14 if inner else 19)
    yield f'  <text x="{box.middle:.0f}" y="{name:.0f}">{escape(box.name)}</text>'
    said = f"{box.files} file{'s' * (box.files != 1)}"
    yield f'  <text class="files" x="{box.middle:.0f}" y="{name + 14:.0f}">{said}</text>'


def _arrows(placed: dict[str, Box]) -> Iterator[str]:
    for package, others in sorted(imports().items()):
        for other in sorted(others):
            if package in placed and other in placed:
                yield _arrow(placed[package], placed[other])


def _arrow(start: Box, end: Box) -> str:
    """From the lower edge of one box to the upper edge of the other, as a curve that leaves and arrives downwards."""
    span = (end.x + end.width / 2) - start.middle
    x1 = start.middle + max(-0.4, min(0.4, span / _WIDTH)) * start.width
    x2 = end.middle - max(-0.4, min(0.4, span / _WIDTH)) * end.width
    y1, y2 = start.y + start.height, end.y
    bend = max(18.0, (y2 - y1) / 2)
    curve = f"C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"
    return f'  <path class="import" d="M{x1:.0f} {y1:.0f} {curve}"/>'


def listed(page: str) -> str:
    """The text of the page with its list of packages made anew: each with the first sentence of its docstring."""
    before, heading, _ = page.partition("## The packages\n")
    rows = [f"| `{package.relative_to(ROOT).as_posix()}` | {_summary(package)} |" for package in _packages()[1:]]
    return before + heading + "\n".join(["", "| package | holds |", "|---|---|", *rows, ""])


def all_modules() -> str:
    """The page of all modules, package by package: each with the first sentence of its docstring."""
    return "\n".join([_MODULES_HEAD, *(line for package in _packages() for line in _modules(package))])


def _modules(package: Path) -> Iterator[str]:
    modules = [path for path in sorted(package.glob("*.py")) if path.name not in ("__init__.py", "__main__.py")]
    if modules:
        yield from (f"## {package.relative_to(ROOT).as_posix()}", "", "| module | holds |", "|---|---|")
        yield from (f"| `{module.name}` | {_summary(module)} |" for module in modules)
        yield ""


def _packages() -> list[Path]:
    return [path.parent for path in sorted((ROOT / PACKAGE).rglob("__init__.py"))]


def _summary(package: Path) -> str:
    source = package / "__init__.py" if package.is_dir() else package
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ").replace("|", r"\|")


def main() -> int:
    """Write the picture and the lists."""
    PICTURE.write_text(drawn(), encoding="utf-8")
    PAGE.write_text(listed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    MODULES.write_text(all_modules(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Elements of HTML and SVG. Text is escaped when they are written, and what is no character to be seen is spelled before."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, tostring

from astyqueue.printable import printable

Child = Element | str | None


def tag(name: str, /, *children: Child, **attributes: str | float) -> Element:
    """An element; `class_` is its class, and underscores in other names are hyphens."""
    made = Element(name, {key.rstrip("_").replace("_", "-"): _spelled(value) for key, value in attributes.items()})
    for child in children:
        _put(made, child)
    return made


def tags(name: str, texts: Iterable[str], **attributes: str | float) -> list[Element]:
    """An element for each text."""
    return [tag(name, text, **attributes) for text in texts]


def page(root: Element) -> str:
    """A whole page of HTML."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def _put(parent: Element, child: Child) -> None:
    if isinstance(child, Element):
        parent.append(child)
    elif child is not None and len(parent):
        parent[-1].tail = (parent[-1].tail or "") + printable(child)
    elif child is not None:
        parent.text = (parent.text or "") + printable(child)


def _spelled(value: str | float) -> str:
    return printable(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")

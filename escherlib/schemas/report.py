"""Schema of parameters/report.yaml: cover, marking, page, pills and glossary of the report."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from escherlib.schemas.base import Items, Positive, Strict, Text

Status = Literal["PASS", "FAIL", "WARN", "WARN_CPU", "SKIP", "PARTIAL_PASS"]


def _colour(text):
    if len(text) != 7 or text[0] != "#" or any(c not in "0123456789abcdefABCDEF" for c in text[1:]):
        raise ValueError(f"{text!r} is no colour; expected six hex digits, such as '#0072B2'")
    return text


Colour = Annotated[str, AfterValidator(_colour)]


class Cover(Strict):
    """The first page."""

    title: Text
    subtitle: str
    author: str
    organisation: str


class Page(Strict):
    """Paper of the PDF."""

    size: Literal["A4", "Letter"]
    margin_mm: Positive


class Pill(Strict):
    """How a status word is shown."""

    label: Text
    colour: Colour


class ReportConfig(Strict):
    """The whole file."""

    cover: Cover
    marking: str
    sensitivity: str
    page: Page
    palette: Items[Colour] = Field(min_length=1)
    pills: dict[Status, Pill]
    glossary: dict[Text, Text]

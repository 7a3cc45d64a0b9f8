"""Elements of the report: text, tables and figures as HTML."""

import io
import re
from html import escape
from typing import Any

from rarehmm import plots
from rarehmm.posterior.posterior import MODE_ONLY, Posterior


def section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>\n"


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>'


def table(header: list[str], rows: list[list[str]], kinds: list[str] | None = None, text: tuple[int, ...] = ()) -> str:
    """Return an HTML table whose cells are HTML; ``text`` columns are left-aligned, ``kinds`` are row classes."""
    cls = ['class="text"' if i in text else "" for i in range(len(header))]
    top = "".join(f'<th scope="col" {c}>{escape(name)}</th>' for name, c in zip(header, cls, strict=True))
    body = ""
    for number, row in enumerate(rows):
        cells = "".join(f"<td {c}>{cell}</td>" for cell, c in zip(row, cls, strict=True))
        body += f'<tr class="{kinds[number] if kinds else ""}">{cells}</tr>'
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def with_intervals(text: str, posterior: Posterior) -> str:
    """Return a caption that says how uncertain what it describes is."""
    return f"{text}: {MODE_ONLY}" if posterior.is_mode else f"{text}, with 90 % intervals"


def swatch(k: int) -> str:
    return f'<span class="swatch" style="background:{plots.colour(k)}"></span>'


def svg(figure: Any, caption: str) -> str:
    """Return a figure as inline SVG that adopts the page's text colour in place of black and grey."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": str(id(figure)), "font.family": "sans-serif"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"(fill|stroke): (#000000|#404040|#666666)", r"\1: currentColor", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
    top = f'<figcaption class="soft">{escape(caption)}</figcaption>'
    return f'<figure>{top}<div class="wide" tabindex="0">{text}</div></figure>'

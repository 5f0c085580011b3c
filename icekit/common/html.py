"""Pieces of HTML that look the same in JupyterLab, light or dark, and in a report, and pages from
templates; no pandas.
"""

from functools import cache
from typing import Any

from icekit.common.units import count, size, span, with_no_break_units

# Text has a contrast of at least 4.5 to its background (WCAG AA). Both colours are set,
# because JupyterLab's dark theme would otherwise make the text white.
_RULES = """
.icekit { background: #fff; color: #1b1b1b; font: 15px/1.45 system-ui, sans-serif; text-align: left; padding: 4px; max-width: 60em; }
.icekit p { margin: .35em 0; color: inherit; overflow-wrap: anywhere; }
.icekit code, .icekit pre { font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; background: #f2f2f0; color: #1b1b1b; }
.icekit code { padding: 0 .25em; overflow-wrap: anywhere; }
.icekit pre { margin: .2em 0; padding: .6em 5.2em .6em .7em; white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere; border: 0; }
.icekit img { background: #fff; }
.icekit summary { cursor: pointer; color: #0b5394; padding: .3em 0; }
.icekit .scroll { overflow-x: auto; }
.icekit table { border-collapse: collapse; font-size: 13px; margin: 0; color: inherit; background: #fff; border: 0; }
.icekit th, .icekit td { padding: .2em .5em; border: 0; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; color: inherit; background: #fff; }
.icekit thead th { white-space: normal; vertical-align: bottom; }
.icekit tbody th { font-weight: 400; } .icekit .n { text-align: right; font-variant-numeric: tabular-nums; }
.icekit .finding, .icekit .card { border: 1px solid #ccc; border-left-width: 6px; padding: .5em .8em; margin: 0 0 .7em; }
.icekit .critical { border-left-color: #a1260d; } .icekit .critical .badge { background: #a1260d; }
.icekit .warning { border-left-color: #e69f00; } .icekit .warning .badge { background: #7a4b00; }
.icekit .info { border-left-color: #0072b2; } .icekit .info .badge { background: #0b5394; }
.icekit .fine { border-left-color: #009e73; } .icekit .fine .badge { background: #00634a; }
.icekit .badge { display: inline-block; color: #fff; padding: 0 .55em; font-size: 13px; white-space: nowrap; }
.icekit .title { font-size: 17px; font-weight: 600; margin: 0 0 .3em; overflow-wrap: anywhere; } .icekit small { font-size: 13px; font-weight: 400; color: #595959; }
.icekit dd code { display: inline-block; margin: 0 .2em .15em 0; }
.icekit dl { display: grid; grid-template-columns: 7.5em minmax(0, 1fr); gap: .15em .8em; margin: .3em 0; }
.icekit dt, .icekit dd { float: none; width: auto; margin: 0; padding: 0; overflow-wrap: anywhere; }
.icekit dt { color: #595959; font-weight: 400; } .icekit dd.whole { grid-column: 1 / -1; }
.icekit .sql { position: relative; }
.icekit .sql button { position: absolute; top: .35em; right: .35em; font: 13px system-ui, sans-serif; color: #1b1b1b; background: #fff; border: 1px solid #888; padding: .15em .6em; cursor: pointer; }
@media (scripting: enabled) { .icekit .sql button[hidden] { display: block; } }
@media (max-width: 480px) { .icekit dl { grid-template-columns: minmax(0, 1fr); gap: 0; } .icekit dt { margin-top: .35em; } .icekit pre { padding: 2.4em .6em .6em; } .icekit td:first-child { white-space: normal; } }
"""

# A doubled class name takes precedence over the table and list rules of JupyterLab and nbconvert.
_STYLE = _RULES.replace(".icekit", ".icekit.icekit")


def framed(*parts: str) -> str:
    """Put parts into a frame with icekit's style; MathJax ignores its text."""
    return (
        '<div class="icekit tex2jax_ignore '
        f'mathjax_ignore"><style>{_STYLE}</style>{"".join(parts)}</div>'
    )


def escaped_text(value: object) -> str:
    """Escape a value for text or an attribute."""
    from markupsafe import escape

    return str(escape(value))


def escaped_sentence(sentence: str) -> str:
    """Escape a sentence and keep figures and their units on one line."""
    return escaped_text(with_no_break_units(sentence))


def block(macro_name: str, *values: Any) -> str:
    """A piece of a page: a macro of the template ``blocks.html``."""
    return str(
        getattr(_template_environment().get_template("blocks.html").module, macro_name)(*values)
    )


def render(template_name: str, **values: Any) -> str:
    """A page from a template; pass existing HTML as :class:`markupsafe.Markup`."""
    return str(_template_environment().get_template(template_name).render(**values))


def page(title: str, body_html: str) -> str:
    """A page of one section, that opens offline, from existing HTML."""
    from markupsafe import Markup

    return render("table.html", title=title, sections=[{"body": Markup(body_html)}], document="")


@cache
def _template_environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("icekit.common"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count,
        "size": size,
        "span": span,
        "unbroken": with_no_break_units,
    }
    return environment

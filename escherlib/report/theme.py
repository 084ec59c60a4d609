"""How charts look and travel: palette, one Altair theme, one renderer that works offline, `show`.

The renderer emits the Vega-Lite MIME type that JupyterLab draws by itself (version 5, without network) and,
as plain text, the chart's alternative text. Colours are Okabe-Ito; the three light ones of that palette fail
3:1 against white, so they are only ever fills, and every series also has its own shape and dash.
"""

from dataclasses import dataclass

MIME = "application/vnd.vegalite.v5+json"
VL_VERSION = "5.20"  # newer ones print `undefined` in tooltips; JupyterLab itself carries an older 5.x
FONT = "DejaVu Sans"
RENDERER = "escher"

INK, MUTED, GRID, AXIS = "#1b1f24", "#5b6470", "#e6eaee", "#8a94a0"
BLUE, VERMILLION, GREEN, PURPLE, BLACK, GREY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#1b1f24",
    "#7a8490",
)
FILLS = {"orange": "#E69F00", "sky": "#8CCBF0", "grey": "#D5DAE0"}  # never thin lines, never text
# Text in a series' colour is darker than its line, so that small print keeps 4.5:1 on white.
TEXT = {BLUE: "#005A94", VERMILLION: "#A84700", GREEN: "#00694C", PURPLE: "#8E4470", BLACK: INK, GREY: MUTED}


@dataclass(frozen=True)
class Style:
    """Looks of one series: colour, point shape and dash always together, never colour alone."""

    color: str
    shape: str
    dash: tuple = (1, 0)

    @property
    def text(self):
        """Colour of text about this series."""
        return TEXT[self.color]


STATES = {
    "burst": Style(BLUE, "circle"),
    "sustained": Style(VERMILLION, "square", (6, 3)),
    "cold": Style(GREEN, "diamond", (2, 2)),
    "hot": Style(PURPLE, "triangle-up", (2, 2)),
}
SERIES = (
    Style(BLUE, "circle"),
    Style(VERMILLION, "square", (6, 3)),
    Style(GREEN, "diamond", (2, 2)),
    Style(PURPLE, "triangle-up", (8, 2, 2, 2)),
    Style(BLACK, "cross", (4, 2)),
    Style(GREY, "triangle-down", (1, 2)),
    Style(GREY, "triangle-right", (10, 3)),
)


def theme():
    """Vega-Lite configuration shared by notebooks, HTML and PDF."""
    return {
        "config": {
            "background": "white",
            "font": FONT,
            "padding": 6,
            "view": {"stroke": None},
            "title": {
                "anchor": "start",
                "frame": "bounds",
                "fontSize": 14,
                "fontWeight": "bold",
                "color": INK,
                "offset": 14,
                "subtitleColor": MUTED,
                "subtitleFontSize": 11,
                "subtitlePadding": 5,
            },
            "axis": {
                "labelColor": MUTED,
                "labelFontSize": 11,
                "titleColor": INK,
                "titleFontSize": 11,
                "titlePadding": 8,
                "titleFontWeight": "normal",
                "gridColor": GRID,
                "domainColor": AXIS,
                "tickColor": AXIS,
                "labelPadding": 4,
            },
            "text": {"font": FONT, "fontSize": 11, "color": INK},
            "legend": {"labelColor": INK, "labelFontSize": 11, "titleColor": MUTED, "titleFontSize": 11},
            "point": {"size": 55, "opacity": 1},
        }
    }


def bundle(spec, **_):
    """Renderer: a chart's spec → (MIME bundle, its metadata); no `$schema`, so no remote address."""
    spec = {name: value for name, value in spec.items() if name != "$schema"}
    alt = spec.get("description") or "Chart without a description"
    return {MIME: spec, "text/plain": alt}, {MIME: {"alt": alt}, "alt": alt}


def enable():
    """Make theme and renderer the current ones of Altair. Notebooks call it in their set-up cell."""
    import altair

    altair.theme.register(RENDERER, enable=True)(lambda: altair.theme.ThemeConfig(theme()))
    altair.renderers.register(RENDERER, bundle)
    altair.renderers.enable(RENDERER)
    altair.data_transformers.disable_max_rows()


def spec_of(chart):
    """Plain spec of an Altair chart under our theme, without `$schema`. A dict passes through."""
    if isinstance(chart, dict):
        return chart
    import altair

    if altair.theme.active != RENDERER:
        enable()
    spec = chart.to_dict(
        validate=False
    )  # our charts are held to the schema by a test; validating takes longer than drawing
    spec.pop("$schema", None)
    return spec


def caption_of(spec):
    """Caption a chart carries (`usermeta.caption`), or None."""
    return (spec.get("usermeta") or {}).get("caption")


def show(chart, alt=None, caption=None):
    """Display a chart with its caption below. Both texts default to those the chart function generated.

    What is no chart (a "not measured" box, a table, a card) is displayed as it is.
    """
    from IPython.display import display

    if not hasattr(chart, "to_dict"):
        display(chart)
        return
    spec = spec_of(chart)
    spec["description"] = alt or spec.get("description") or "Chart without a description"
    caption = caption or caption_of(spec)
    data, metadata = bundle(spec)
    metadata["escher"] = {"caption": caption}
    display(data, raw=True, metadata=metadata)
    if caption:
        text = {"text/markdown": f"*{caption}*", "text/plain": caption}
        display(text, raw=True, metadata={"escher": {"role": "caption"}})

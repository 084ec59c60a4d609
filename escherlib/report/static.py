"""Charts without a browser: SVG and PNG by vl-convert, and the script bundle that makes them live.

A spec may come from somebody else's notebook, so it is reduced to what draws: no address to load from, no
link, no embedding options. Conversion is told to fetch nothing.
"""

import json
import re
from functools import cache

from escherlib.files import canonical_json
from escherlib.report.theme import VL_VERSION

REMOTE_KEYS = {"url", "href", "base_url", "loader"}
PNG_SCALE = 2


def safe_spec(spec):
    """Spec without `$schema` and embedding options, or None where it names an address or is no object."""
    if not isinstance(spec, dict) or _names_an_address(spec):
        return None
    kept = {key: value for key, value in spec.items() if key not in ("$schema", "usermeta")}
    caption = (spec.get("usermeta") or {}).get("caption") if isinstance(spec.get("usermeta"), dict) else None
    return kept | ({"usermeta": {"caption": str(caption)}} if caption else {})


def _names_an_address(node):
    if isinstance(node, dict):
        return any(key in REMOTE_KEYS or _names_an_address(value) for key, value in node.items())
    return any(map(_names_an_address, node)) if isinstance(node, list) else False


def svg(spec):
    """SVG text of a spec, with its description as <title>. ValueError where it can't be drawn."""
    return _svg(canonical_json(spec))


@cache
def _svg(text):
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(text, vl_version=VL_VERSION, allowed_base_urls=[])
    return with_title(drawn, json.loads(text).get("description"))


def with_title(drawn, title):
    """Put a <title> first into an SVG: what a screen reader and a tagged PDF read out."""
    from escherlib.report.display import escape

    return (
        re.sub(r"(<svg\b[^>]*>)", lambda m: f"{m[1]}<title>{escape(title)}</title>", drawn, count=1)
        if title
        else drawn
    )


def png(spec):
    """PNG bytes of a spec at twice its size."""
    import vl_convert

    return vl_convert.vegalite_to_png(
        canonical_json(spec), vl_version=VL_VERSION, scale=PNG_SCALE, allowed_base_urls=[]
    )


def prefixed(drawn, prefix):
    """SVG whose ids and references start with `prefix`, so that many can stand in one page."""
    return re.sub(r'(\bid="|url\(#|href="#)', lambda m: f"{m[0]}{prefix}-", drawn)


def script_json(spec):
    """Spec as JSON that is safe inside a <script> element."""
    text = json.dumps(spec, ensure_ascii=False, allow_nan=False, sort_keys=True)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def bundle():
    """Vega, Vega-Lite and Vega-Embed as one script that is safe inline (about 0.9 MB)."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VL_VERSION)
    return script.replace("</script", "<\\/script")

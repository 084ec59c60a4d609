"""Executed notebooks for FAKE runs: the grammar of a family notebook, outputs as a kernel would have left
them.
"""

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from escherlib.report import cards, charts, tables
from escherlib.report.theme import bundle, caption_of, spec_of

CHARTS = {
    "00_environment": ("usable",),
    "01_bf16_compute": ("gemm_sweep", "transient", "workload_gemms", "search_ranking", "dtype_ladder"),
    "02_memory_bandwidth": ("bandwidth", "cache_curve"),
    "03_memory_capacity": ("capacity",),
}
TABLES = {
    "00_environment": ("precheck", "environment"),
    "01_bf16_compute": ("peak", "gemm", "variants", "correctness"),
    "02_memory_bandwidth": ("bandwidth", "plateaus"),
    "03_memory_capacity": ("capacity",),
}


def code(source, *outputs, tags=()):
    """A code cell that ran."""
    return new_code_cell(source, outputs=list(outputs), execution_count=1, metadata={"tags": list(tags)})


def shown(thing):
    """Outputs of one card, table or chart."""
    if not hasattr(thing, "to_dict"):
        data, metadata = thing._repr_mimebundle_()
        return [new_output("display_data", data, metadata=metadata)]
    spec = spec_of(thing)
    data, metadata = bundle(spec)
    caption = caption_of(spec)
    return [
        new_output("display_data", data, metadata=metadata | {"escher": {"caption": caption}}),
        new_output(
            "display_data",
            {"text/markdown": f"*{caption}*", "text/plain": caption},
            metadata={"escher": {"role": "caption"}},
        ),
    ]


def family_notebook(results, family):
    """Notebook of one family of a fake run."""
    cells = [
        new_markdown_cell(f"# {family}\n\nHow fast is it, on *invented* values?"),
        new_markdown_cell(
            "## Why it matters\n\nA limit of everything; see [memory](02_memory_bandwidth.ipynb)."
        ),
        new_markdown_cell("## Parameters\n\nChange one and run the cells below again."),
        code("sizes = None  # sizes to measure", tags=["parameters"]),
        code("sizes = [1024]", tags=["injected-parameters"]),
        new_markdown_cell("## Set-up\n\nTells how to hold the notebook."),
        code("from escherlib.run import open_run\nrun = open_run('x')", tags=["setup"]),
        new_markdown_cell("## System"),
        code("cards.system_card(run.results)", *shown(cards.system_card(results))),
        new_markdown_cell("## Expected ceiling"),
        code("cards.ceiling_card(run.results, family)", *shown(cards.ceiling_card(results, family))),
        new_markdown_cell("## Measure"),
        code(
            "run.sweep(...)",
            new_output("stream", name="stdout", text="6 rows\n"),
            new_output("stream", name="stderr", text="a warning\nand another\n"),
        ),
        new_markdown_cell("## Table"),
        *(
            code(f"tables.{name}(run.results)", *shown(getattr(tables, name)(results)))
            for name in TABLES[family]
        ),
        new_markdown_cell("## Charts"),
        *(
            code(f"show(charts.{name}(run.results))", *shown(getattr(charts, name)(results)))
            for name in CHARTS.get(family, ())
        ),
        new_markdown_cell("## Play with it\n\nMove the slider."),
        code("widget()", tags=["interactive"]),
    ]
    if family in ("01_bf16_compute", "02_memory_bandwidth"):
        cells += [
            new_markdown_cell("## On the roofline"),
            code("show(charts.roofline(run.results))", *shown(charts.roofline(results, family))),
        ]
    cells += [
        new_markdown_cell("## Takeaway"),
        code("cards.takeaway(run.results, family)", *shown(cards.takeaway(results, family))),
        new_markdown_cell(
            "## Method and caveats\n\n- Invented values: `n` means nothing.\n- Times are medians."
        ),
        code("run.finish()", new_output("stream", name="stdout", text="finished\n")),
    ]
    return new_notebook(
        cells=cells,
        metadata={
            "papermill": {"end_time": "2026-03-04T05:11:00+00:00"},
            "kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"},
        },
    )


def add_notebooks(results, leave_out=()):
    """Write the executed notebooks of all families of a fake run, but for those left out."""
    for family in TABLES:
        if family not in leave_out:
            nbformat.write(family_notebook(results, family), results.path / f"{family}.ipynb")


ATTACKS = (
    "<script>window.__xss = 1</script>",
    "<img src=x onerror='window.__xss = 2'>",
    "<a href='javascript:window.__xss = 3'>click</a>",
    "<svg onload='window.__xss = 4'><script>window.__xss = 5</script></svg>",
    "<iframe srcdoc='<script>parent.__xss = 6</script>'></iframe>",
    "<div style='position:fixed;inset:0'>cover</div>",
    "<img src='https://example.com/track.png'>",
    "<form action='https://example.com'><input name=secret></form>",
    "<math><mtext></mtext><mglyph><style><img src onerror='window.__xss = 7'></style></mglyph></math>",
    "<noscript><p title='</noscript><img src=x onerror=window.__xss=8>'></noscript>",
)


def hostile_notebook(path):
    """Write an executed notebook that tries whatever a stranger's notebook may try."""
    spec = {"data": {"url": "https://example.com/data.json"}, "mark": "point", "encoding": {}}
    looks_safe = {
        "data": {"values": [{"a": 1}]},
        "mark": "point",
        "encoding": {"x": {"field": "a", "type": "quantitative"}},
        "description": "</script><script>window.__xss = 9</script>",
        "usermeta": {"embedOptions": {"sourceHeader": "<script>window.__xss = 10</script>"}},
    }
    markdown = [new_markdown_cell(f"# 00\n\n## Part {i}\n\n{text}") for i, text in enumerate(ATTACKS)]
    html = [
        code("attack()", new_output("display_data", {"text/html": text, "text/plain": text}))
        for text in ATTACKS
    ]
    mime = "application/vnd.vegalite.v5+json"
    others = [
        code("remote()", new_output("display_data", {mime: spec, "text/plain": "x"})),
        code("chart()", new_output("display_data", {mime: looks_safe, "text/plain": "x"})),
        code("js()", new_output("display_data", {"application/javascript": "window.__xss = 11"})),
        code(
            "text()", new_output("stream", name="stdout", text="</pre><script>window.__xss = 12</script>\n")
        ),
        code(
            "fail()",
            new_output(
                "error", ename="<b>E", evalue="<script>window.__xss = 13</script>", traceback=["\x1b[31mred"]
            ),
        ),
        code(
            "'</code></pre><script>window.__xss = 14</script>'",
            new_output("stream", name="stderr", text="noise\n"),
        ),
        new_markdown_cell(
            "[x]: javascript:window.__xss=15\n\n[go][x] ![i](https://example.com/i.png)\n\n```\n<script>shown</script>\n```"
        ),
        new_markdown_cell("<p>red papermill box</p>", metadata={"tags": ["papermill-error-cell-tag"]}),
    ]
    nbformat.write(new_notebook(cells=[*markdown, *html, *others]), path)

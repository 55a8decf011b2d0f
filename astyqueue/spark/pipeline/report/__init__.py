"""A page on the outcomes of messages: one self-contained HTML file, made from the tables of the pipeline.

- `reader`: the tables, column by column and without Spark, with a bound on the memory for names.
- `data`: the numbers of a report from them; `time_series`: counts and percentiles in each time slice.
- `sections`: what the page says about one queue. `page` puts the sections together.
- `html`, `charts`: elements of the page and charts as SVG, with text escaped; `style.css` has the colours.

It is written after a run of the pipeline (`--report`), or later by `astyqueue pipeline report`.
docs/how-to/pipeline.md shows how to read it, docs/decisions/0014-the-report-draws-its-charts-as-svg.md why it needs no
other file.
"""

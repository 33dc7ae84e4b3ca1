"""A schedule as text, HTML and JSON for people: `wsopt inspect`, notebooks, summaries."""

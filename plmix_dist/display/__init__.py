"""Small HTML and SVG, made of text: what the report, notebooks and the dashboard panel draw with."""

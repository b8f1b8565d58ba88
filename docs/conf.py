"""The site: Sphinx, pages in MyST, notebooks by MyST-NB, the theme of pydata. `make docs` builds it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import plmix_dist

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
import api_pages  # noqa: E402 - beside the directives of this site

project = "plmix_dist"
author = "the plmix_dist maintainers"
copyright = f"2026, {author}"  # noqa: A001 - Sphinx's name
version = release = plmix_dist.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click", "promise_tests", "settings_table"]
if os.environ.get("PLMIX_DOCS_ONLINE"):  # links into the pages of others; their indexes come over the network
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        name: (f"https://{address}", None)
        for name, address in {
            "python": "docs.python.org/3/",
            "numpy": "numpy.org/doc/stable/",
            "dask": "docs.dask.org/en/stable/",
            "sklearn": "scikit-learn.org/stable/",
        }.items()
    }
exclude_patterns = ["_build", "_ext", "**/.ipynb_checkpoints"]
# Pages of parts that may not be built in yet: they have a place in a toctree, and are left out while they are missing.
_PREPARED = (
    "bayes",
    "checkpoints",
    "choosing-k",
    "dashboard",
    "deploy",
    "jobs",
    "jupyter",
    "m-steps",
    "operations",
    "paper",
    "paper-experiments",
    "plots",
    "releases",
    "report",
    "security",
    "selection",
)

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = os.environ.get("PLMIX_DOCS_NOTEBOOKS", "cache")  # "off" builds quickly, without outputs
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
# Notebooks that need minutes are shown as they are; tests run them.
_EXECUTED = ("quickstart", "ballots", "ratings", "arena", "choices", "blocs", "choosing-k", "cluster", "paper")

autodoc_typehints = "none"  # signatures would hold names of modules that readers need not know
autodoc_member_order = "bysource"
autoclass_content = "class"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False
napoleon_use_ivar = True
nitpicky = True
# Docstrings write shapes and words where numpydoc has types; these are no references.
nitpick_ignore_regex = [("py:class", r".*")]
suppress_warnings = ["ref.python"]  # words such as `n_items` are attributes of several classes

html_theme = "pydata_sphinx_theme"
html_title = "plmix_dist"
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "about/*": []}
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["plmix.css"]


def _copy_notebooks() -> None:
    """Notebooks live beside docs/, where people look for them; Sphinx reads only what is below."""
    target = HERE / "notebooks"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in sorted((HERE.parent / "notebooks").glob("*.ipynb")):
        text = path.read_text(encoding="utf-8").replace("](../docs/", "](../")  # pages are one folder nearer there
        (target / path.name).write_text(text, encoding="utf-8")


_copy_notebooks()
api_pages.write_pages(HERE / "reference" / "api")
nb_execution_excludepatterns = [
    f"notebooks/{path.name}" for path in (HERE / "notebooks").glob("*.ipynb") if path.stem not in _EXECUTED
]


def _prepare(app: Any, docname: str, source: list[str]) -> None:
    """Drop entries of toctrees, and links, whose page is prepared but not there; name files outside docs/, unlinked."""
    del app
    missing = [name for name in _PREPARED if not (HERE / f"{name}.md").exists()]
    if missing:
        names = "|".join(missing)
        source[0] = re.sub(rf"^\.\./({names})\n", "", source[0], flags=re.MULTILINE)
        source[0] = re.sub(rf"\[([^\]]+)\]\((?:\.\./)?(?:{names})\.md(?:#[^)]*)?\)", r"\1", source[0])
    if "/" not in docname:
        source[0] = re.sub(r"\[([^\]]+)\]\(\.\./([^)#]+)(#[^)]*)?\)", r"\1 (`\2`)", source[0])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _prepare)

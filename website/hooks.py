"""What mkdocs.yml leaves to code: pages that are made from the repository, and formulas as MathML.

Pages that exist elsewhere (README.md, CHANGELOG.md, …) are shown as they stand there, with links into the site.
Pages about settings and files are written from the classes that define them. Formulas become MathML, which browsers
draw without a script.
"""

import html
import os
import posixpath
import re
import sys
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "website"), str(ROOT / "src")]

from settings_pages import commands_page, pretrain_page, run_directory_page  # noqa: E402 - after the path is set

ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "CITATION.cff": "project/CITATION.cff",
    "LICENSE": "project/LICENSE",
    "benchmarks/README.md": "benchmarks/index.md",
    "benchmarks/imagenet_size.png": "benchmarks/imagenet_size.png",
    "website/extra.css": "assets/extra.css",
    "website/iframe-worker.js": "assets/iframe-worker.js",
    "examples/minimal.py": "examples/minimal.py",
    "examples/quickstart.ipynb": "examples/quickstart.ipynb",
}
"""Files of the repository that are not in docs/, and where they are on the site."""
WRITTEN = {
    "reference/pretrain.md": pretrain_page,
    "reference/commands.md": commands_page,
    "reference/run-directory.md": run_directory_page,
}
_LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(?=\))")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files that are not in docs/."""
    for source, target in ELSEWHERE.items():
        if target.endswith(".md"):
            files.append(File.generated(config, target, content=(ROOT / source).read_text("utf-8")))
        else:
            files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    for target, page in WRITTEN.items():
        files.append(File.generated(config, target, content=page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that are right in the repository lead to the same pages on the site."""
    here = page.file.src_uri
    source = next((path for path, target in ELSEWHERE.items() if target == here), f"docs/{here}")
    return _LINK.sub(lambda link: link[1] + _on_site(link[2], source, here) + (link[3] or ""), markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas as MathML."""
    return _FORMULA.sub(_mathml, content)


def _on_site(link: str, source: str, here: str) -> str:
    """A link in the file `source` of the repository, as it must stand on the page `here`."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if target not in ELSEWHERE and not target.startswith("docs/"):
        return link  # a page that was written, or a mistake, which the strict build reports
    return os.path.relpath(ELSEWHERE.get(target, target.removeprefix("docs/")), posixpath.dirname(here) or ".")


def _mathml(found: re.Match[str]) -> str:
    drawn = convert(html.unescape(found[3]).strip(), display="inline" if found[2] == "(" else "block")
    return f'<{found[1]} class="formula">{drawn}</{found[1]}>'

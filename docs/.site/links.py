"""Hook of mkdocs: a link to a file of the repository that is no page becomes the path of that file."""

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)((?:#[^)\s]*)?)\)")


def on_page_markdown(markdown: str, *, page: Any, files: Any, **_: object) -> str:  # noqa: ANN401 - types of mkdocs
    """Replace links that leave the documentation."""

    def replace(link: re.Match[str]) -> str:
        text, target, anchor = link.groups()
        if "://" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), target))
        if files.get_file_from_path(path) is not None:
            return f"[{text}]({target}{anchor})"
        return f"{text} (`{posixpath.normpath(posixpath.join('docs', path))}`)"

    return _LINK.sub(replace, markdown)

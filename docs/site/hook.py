"""Makes the site from the pages as they are: links out of docs go to the repository, the index page gives the navigation, and
the built pages are checked."""

import os
import posixpath
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from mkdocs.exceptions import PluginError

REPOSITORY = "https://github.com/spillway-go/spillway"
# Links that can be read on a dark page; names in tables stay whole, and wide tables scroll. Tables are tighter on a phone. A shadow
# at the edge of a table or of code says that there is more beside it: it stays with the edge, and its cover moves with the content.
STYLE = """<style>
[data-md-color-scheme=slate]{--md-typeset-a-color:#9fa8da}
.md-typeset table:not([class]) code{word-break:normal}
.md-typeset table:not([class]){background:none}
.md-typeset__scrollwrap,.md-typeset pre>code{--cover:var(--md-default-bg-color);--shadow:#0003;
background:linear-gradient(var(--cover) 0 0) 0 -1px/1rem calc(100% + 2px) no-repeat local,
linear-gradient(var(--cover) 0 0) 100% -1px/1rem calc(100% + 2px) no-repeat local,
linear-gradient(to right,var(--shadow),#0000) left/.6rem 100% no-repeat,linear-gradient(to left,var(--shadow),#0000) right/.6rem 100% no-repeat}
.md-typeset pre>code{--cover:var(--md-code-bg-color);background-color:var(--md-code-bg-color)}
[data-md-color-scheme=slate] :is(.md-typeset__scrollwrap,pre>code){--shadow:#000b}
@media(max-width:44.9em){.md-typeset table:not([class]) :is(th,td){padding:.5em .6em;min-width:4.5em}}
</style>"""
# The theme keeps the colours of the first visit. Unless the reader has chosen some, they follow the system.
COLOURS = """<script>try{
if(!localStorage.getItem("chosen"))Object.keys(localStorage).filter(k=>k.endsWith("__palette")).forEach(k=>localStorage.removeItem(k))
addEventListener("click",e=>{if(e.target.closest("label[for^=__palette],input[id^=__palette]"))localStorage.setItem("chosen","yes")},true)
}catch{}</script>"""
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]+)?\)")
FENCE = re.compile(r"^\s*```.*?^\s*```\s*?$", re.M | re.S)


def slug(text, separator):
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\s-]", "", text.lower()).strip().replace(" ", separator)


def on_config(config):
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    config.nav = [{"Index": "README.md"}] + navigation(config.docs_dir, "README.md", {"README.md"})
    return config


def navigation(root, index, seen):
    """The sections of an index page, each with the pages that it links, and the sections of index pages among them."""
    sections = []
    with open(os.path.join(root, index), encoding="utf-8") as f:
        text = f.read()
    for part in re.split(r"^## ", text, flags=re.M)[1:] or [text]:
        pages = []
        for target, anchor in LINK.findall(part):
            page = posixpath.normpath(posixpath.join(posixpath.dirname(index), target))
            if page in seen or anchor or not page.endswith(".md") or page.startswith("../"):
                continue
            seen.add(page)
            pages.append(page)
            if page.endswith("/README.md"):
                pages += navigation(root, page, seen)
        sections.append({part.split("\n", 1)[0]: pages})
    return sections if len(sections) > 1 else list(sections[0].values())[0]


def on_files(files, config):
    for file in list(files):
        if file.src_path.startswith("site" + os.sep):
            files.remove(file)
    return files


def on_nav(nav, config, files):
    lost = {p.src_path for p in files.documentation_pages()} - {p.file.src_path for p in nav.pages}
    if lost:
        raise PluginError(f"no index page links to {sorted(lost)}")
    return nav


def on_page_markdown(markdown, page, config, files):
    """Sends links to what is not in docs to the repository."""
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_path.replace(os.sep, "/")))

    def rewritten(m):
        path = posixpath.normpath(posixpath.join(folder, m[1]))
        if "://" in m[1] or path.startswith("docs/"):
            return m[0]
        kind = "tree" if os.path.isdir(os.path.join(config.docs_dir, "..", path)) else "blob"
        return f"]({REPOSITORY}/{kind}/main/{path}{m[2] or ''})"

    parts, end = [], 0
    for code in FENCE.finditer(markdown):
        parts += [LINK.sub(rewritten, markdown[end:code.start()]), code[0]]
        end = code.end()
    return "".join(parts) + LINK.sub(rewritten, markdown[end:])


def on_post_page(output, page, config):
    return output.replace("</head>", STYLE + COLOURS + "</head>", 1)


class Built(HTMLParser):
    """The anchors and the links of a built page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs.get("id"), attrs.get("name")}
        if tag == "a":
            self.links.append(attrs.get("href"))
        elif tag == "link" and attrs.get("rel") not in ("canonical", "prev", "next") or tag != "link":
            self.loads += [attrs.get("src"), attrs.get("href"), attrs.get("data")]


def on_post_build(config):
    pages, problems = {}, []
    for folder, _, names in os.walk(config.site_dir):
        for name in names:
            if name.endswith(".html"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    pages[path] = Built(f.read())
            elif name.endswith((".css", ".svg")):
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    problems += [f"{name} loads {u}" for u in re.findall(r"(?:url\(|@import )[\"']?(https?:[^\"')]+)", f.read())]
    for path, page in pages.items():
        problems += [f"{path} loads {u}" for u in page.loads if u and urlsplit(u).netloc]
        if path.endswith("404.html"):  # its links begin at the root of a server
            continue
        for link in filter(None, page.links + page.loads):
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(path), unquote(url.path))) if url.path else path
            if not os.path.exists(target):
                problems.append(f"{path}: {link} does not exist")
            elif url.fragment and target in pages and unquote(url.fragment) not in pages[target].anchors:
                problems.append(f"{path}: {link} has no such anchor")
    if problems:
        raise PluginError("\n".join(problems))

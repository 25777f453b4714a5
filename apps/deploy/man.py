#!/usr/bin/env python3
"""man.py - manual pages from what there is to read already, so that the two say the same

    man.py command OUT PROGRAM [SUBCOMMAND ...]   section 1, from --help
    man.py library OUT VERSION verbena.h HEADER ...    section 7: the conventions, and what each header is for
    man.py header OUT VERSION HEADER              section 3: a header as it stands

Help is: usage lines, paragraphs, and sections that begin with a line ending in a colon; an entry of a section is
indented by two, its words stand in the next column.
"""
import re
import subprocess
import sys


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return "\\&" + text if text[:1] in ".'" else text


def help_of(program, words):
    return subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True).stdout.rstrip().splitlines()


def is_heading(line):
    return re.fullmatch(r"[a-z][^.]*:", line) is not None


def entries(lines):
    """[what, its words] for each of a section's entries. Their column is where words go on in further lines."""
    found = []
    column = next((len(line) - len(line.lstrip()) for line in lines if line.startswith("   ")), 0)
    for line in lines:
        match = re.fullmatch(r"  (\S.*?)\s{2,}(\S.*)", line)
        if line.startswith("   "):
            found[-1][1].append(line.strip())
        elif column and line[column - 2:column] == "  ":
            found.append([line[:column].strip(), [line[column:]]])
        elif match and not column:
            found.append([match[1], [match[2]]])
        elif line:
            found.append([line.strip(), []])
    return found


def section(title, lines):
    yield f".SH {title.upper()}"
    for what, words in entries(lines):
        yield ".TP"
        yield f".B {roff(what)}"
        yield roff(" ".join(words)) or "\\&"


def paragraphs(lines):
    text = "\n".join(lines).strip()
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text)) if text else ():
        if number:
            yield ".PP"
        yield roff(" ".join(line.strip() for line in paragraph.splitlines()))


def blocks(lines):
    """The help cut up: ("usage", "text", or a heading; its lines)."""
    kind, block = "text", []
    for line in lines:
        usage = line.startswith("usage: ")
        ended = kind not in ("text", "usage") and line and not line.startswith(" ") or kind == "usage" and not line
        if usage or ended or is_heading(line):
            yield kind, block
            kind, block = "usage" if usage else line[:-1] if is_heading(line) else "text", []
            if is_heading(line):
                continue
        if kind == "text" and not block and not line:
            continue
        block.append(line.removeprefix("usage: ").strip() if kind == "usage" else line)
    yield kind, block


def purpose(program, words):
    """As the list of subcommands has it; else the first sentence of its own help."""
    if not words:
        return "a poll-mode user-space network stack on RDMA"
    name = " ".join(["verbena", *words])
    for what, text in entries(help_of(program, [])):
        if what == name:
            return " ".join(text)
    text = " ".join(line.strip() for line in help_of(program, words) if not line.startswith("usage: "))
    return re.split(r"[.:] ", text.strip())[0]


def page(program, words, version):
    name = "-".join(["verbena", *words])
    notes, status = [], ""
    yield f'.TH {name.upper()} 1 "" "verbena {version}" "Verbena"'
    yield ".SH NAME"
    yield roff(name) + " \\- " + roff(purpose(program, words))
    title = ".SH DESCRIPTION"
    for kind, block in blocks(help_of(program, words)):
        if not block:
            continue
        text, _, exit_status = "\n".join(block).strip().partition("exit status: ")
        status = exit_status or status
        if kind == "usage":
            yield ".SH SYNOPSIS"
            yield "\n.br\n".join(f".B {roff(line)}" for line in block if line)
        elif kind != "text":
            yield from section(kind, block)
            title = None
        elif block[0].startswith("  "):
            yield from section("commands", block)
            title = None
        elif text and title:
            yield title
            yield from paragraphs(text.splitlines())
            title = ".PP"
        elif text:
            notes += [*text.splitlines(), ""]
    for title, lines in ("NOTES", notes), ("EXIT STATUS", status.splitlines()):
        if lines:
            yield f".SH {title}"
            yield from paragraphs(lines)
    yield ".SH SEE ALSO"
    yield ".BR verbena (1), verbena (7)"


# ---- the library ----

def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def comment_of(path):
    """A header's first comment: what it is, and the lines behind that."""
    text = re.match(r"/\*(.*?)\*/", read(path), re.DOTALL)[1]
    lines = [line.strip().removeprefix("*").removeprefix(" ") for line in text.splitlines()]
    end = lines.index("") if "" in lines else len(lines)
    return " ".join(lines[:end]).strip().partition(" - ")[2], lines[end + 1:]


def as_it_is(text):
    yield ".nf"
    yield from (roff(line) or "\\&" for line in text.rstrip().splitlines())
    yield ".fi"


def headers_page(number, name, title, version):
    yield f'.TH {name.upper()} {number} "" "verbena {version}" "Verbena"'
    yield ".SH NAME"
    yield f"{roff(name)} \\- {roff(title)}"
    yield ".SH SYNOPSIS"


def page_name(path):
    return "verbena_" + re.sub(r".*/|\.h$", "", path)


def library_page(version, main_header, *headers):
    what, conventions = comment_of(main_header)
    yield from headers_page(7, "verbena", what, version)
    yield from as_it_is("#include <verbena.h>\n\ncc program.c $(pkg-config --cflags --libs verbena)")
    yield ".SH CONVENTIONS"
    yield from as_it_is("\n".join(conventions))
    yield ".SH HEADERS"
    yield "Each has a page of its own, with every function's units, ownership, thread and errors."
    for header in headers:
        yield ".TP"
        yield f".BR {page_name(header)} (3)"
        yield roff(comment_of(header)[0])
    yield ".SH SEE ALSO"
    yield ".BR verbena (1)"


def header_page(version, header):
    yield from headers_page(3, page_name(header), comment_of(header)[0], version)
    yield f".B #include <verbena/{header.split('/')[-1]}>"
    yield ".SH DESCRIPTION"
    yield from as_it_is(read(header))
    yield ".SH SEE ALSO"
    yield ".BR verbena (7)"


def command_page(program, *words):
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    return page(program, words, said.split()[-1])


PAGES = {"command": command_page, "library": library_page, "header": header_page}


def main():
    kind, out, *rest = sys.argv[1:]
    text = "\n".join(PAGES[kind](*rest)) + "\n"
    with open(out, "w", encoding="utf-8") as file:
        file.write(text)


main()

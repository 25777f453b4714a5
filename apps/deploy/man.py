#!/usr/bin/env python3
"""man.py - manual pages from what there is to read already, so that the two say the same

    man.py command OUT PROGRAM [SUBCOMMAND ...]   section 1, from --help
    man.py library OUT VERSION verbena.h HEADER ...    section 7: the conventions, and what each header is for
    man.py header OUT VERSION HEADER              section 3: a header's types and functions, each with its comment

Help is: usage lines, paragraphs, and sections that begin with a line ending in a colon; an entry of a section is
indented by two, its words stand in the next column.
"""
import itertools
import re
import subprocess
import sys


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return "\\&" + text if text[:1] in ".'" else text


LEFT = ".ad l", ".nh"  # ragged lines, and whole words: most of them are names


def bold(text):
    return '.B "' + roff(text).replace('"', '\\(dq') + '"'


def see_also(*pages):
    yield ".SH SEE ALSO"
    for number, name in enumerate(pages, 1):
        yield f".BR {roff(name)}" + ("," if number < len(pages) else "")


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
        yield bold(what)
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
    for kind, block in blocks(help_of(program, [])):
        if kind == "text" and block and block[0].startswith("  "):
            for what, text in entries(block):
                if what == name:
                    return " ".join(text)
    text = " ".join(" ".join(block) for kind, block in blocks(help_of(program, words)) if kind == "text" and block)
    return re.split(r"[.:] ", text.strip())[0]


def subcommands(program):
    """The pages beside the first one."""
    found = re.findall(r"(?m)^  verbena ([a-z]+)  ", "\n".join(help_of(program, [])))
    return [f"verbena-{name} (1)" for name in sorted(set(found) - {"help"})]


def page(program, words, version):
    name = "-".join(["verbena", *words])
    notes, status = [], ""
    yield f'.TH {name.upper()} 1 "" "verbena {version}" "Verbena"'
    yield from LEFT
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
            yield "\n.br\n".join(bold(line) for line in block if line)
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
    yield from see_also(*(subcommands(program) if not words else ["verbena (1)"]), "verbena (7)")


# ---- comments ----

def prose(lines):
    """A comment's text: paragraphs are filled, lists are lists, and what else is indented stands as it does there."""
    for kind, run in itertools.groupby(lines, lambda line: "blank" if not line.strip() else "set" if line[0].isspace() else "flush"):
        run = list(run)
        if kind == "blank":
            yield ".PP"
        elif kind == "flush":
            yield roff(" ".join(run))
        else:
            yield from bullets(run) or terms(run) or as_it_is("\n".join(run))


def bullets(lines):
    if not lines[0].lstrip().startswith("- "):
        return []
    items = []
    for line in lines:
        if line.lstrip().startswith("- "):
            items += [".IP \\(bu 2", roff(line.lstrip()[2:])]
        else:
            items.append(roff(line.strip()))
    return [".RS 2", *items, ".RE"]


def terms(lines):
    """A word, and in the next column what it means, in one line or several."""
    first = re.fullmatch(r"(\s+)(\S+(?: \S+)*)\s{2,}(\S.*)", lines[0])
    if not first:
        return []
    indent, column, found = len(first[1]), first.start(3), []
    for line in lines:
        if len(line) - len(line.lstrip()) == column:
            if not found:
                return []
            found.append(roff(line.strip()))
        elif line[:indent].isspace() and not line[indent].isspace() and line[column - 2:column] == "  " and line[column:column + 1].strip():
            found += [".TP", bold(line[:column].strip()), roff(line[column:])]
        else:
            return []
    return [".RS 2", *found, ".RE"]


def as_it_is(text):
    yield ".nf"
    yield from (roff(line) or "\\&" for line in text.rstrip().expandtabs(4).splitlines())
    yield ".fi"


def comment_lines(text):
    """What stands between a comment's marks, without the marks of its lines."""
    lines = [re.sub(r"^\s*\* ?", "", line) if number else line.strip() for number, line in enumerate(text.strip().splitlines())]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


# ---- the library ----

def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def comment_of(path):
    """A header's first comment: what it is, and the lines behind that."""
    lines = comment_lines(re.match(r"/\*(.*?)\*/", read(path), re.DOTALL)[1])
    end = lines.index("") if "" in lines else len(lines)
    return " ".join(lines[:end]).strip().partition(" - ")[2], lines[end + 1:]


def without_cpp(text):
    """Declarations and their comments: no guards, includes, C++, nor macros that are of no use outside."""
    text = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", text, flags=re.DOTALL)
    gone = set(re.findall(r"(?m)^#undef (\w+)", text)) | set(re.findall(r"(?m)^#ifndef (\w+_H)$", text))
    for name in gone:
        text = re.sub(rf"\b{name} (?!\()", "", re.sub(rf"(?m)^#define {name}\b.*\n", "", text))
    text = re.sub(r"(?m)^struct \w+;\n", "", text)
    return re.sub(r"(?m)^#(?!define)(.*\\\n)*.*\n", "", text)


def pieces(text):
    """(comment lines, declaration) of a header, one at a time; either may be empty."""
    comment = []
    while text := text.lstrip("\n"):
        if match := re.match(r"/\*(.*?)\*/[ \t]*\n", text, re.DOTALL):
            comment, text = comment_lines(match[1]), text[match.end():]
            if text.startswith("\n"):
                yield comment, ""
                comment = []
        else:
            match = re.match(r"#define (?:.*\\\n)*.*\n", text) or \
                re.match(r"(?:(?!\n\n).)*?\n\{\n.*?\n\}\n", text, re.DOTALL) or \
                re.match(r"[^\n]*\{\n.*?\n\}[^\n]*;\n", text, re.DOTALL) or re.match(r".*?[;}]\n(?=\n|/\*|#|\w|$)", text, re.DOTALL)
            yield comment, match[0]
            comment, text = [], text[match.end():]


def member_groups(body):
    """[declarations, the words for them] of a struct or an enum; of words that stand alone there are none."""
    groups, words, alone = [], [], True
    for line in re.findall(r"[ \t]*/\*.*?\*/\n|[^\n]*/\*.*?\*/\n|[^\n]*\n", body, re.DOTALL):
        match = re.fullmatch(r"(.*?)\s*(?:/\*(.*?)\*/)?\s*", line, re.DOTALL)
        code, said = match[1].strip(), comment_lines(match[2] or "")
        if not code and not said:
            groups += [[[], words]] if words else []
            words, alone = [], True
        elif not code:
            words, alone = said, True
        elif groups and groups[-1][0] and groups[-1][0][-1][-1] not in ";,":  # it goes on
            groups[-1][0][-1] += code
            groups[-1][1] = groups[-1][1] or said
        elif said:
            groups.append([[code], said])
            alone = True
        elif not alone and groups:
            groups[-1][0].append(code)
        else:
            groups.append([[code], words])
            words, alone = [], False
    return groups


def members(body):
    yield ".RS 4"
    for codes, words in member_groups(body):
        words = [line.lstrip() for line in words]
        if not codes:
            yield ".PP"
            words = [line.strip("- ") for line in words]
        for number, code in enumerate(codes):
            yield (".TQ" if number else ".TP") if words else ".br" if number else ".PP"
            yield bold(code.rstrip(","))
        yield from prose(words)
    yield ".RE"


def declaration(comment, code):
    """One type, function or macro, and what is said of it."""
    if code.startswith("#define") and (said := re.search(r"/\*(.*?)\*/", code)):
        comment, code = comment or comment_lines(said[1]), re.sub(r"\s*\\\n\s*", " ", code.replace(said[0], ""))
    kind = re.match(r"((?:typedef )?(?:struct|enum|union)[^\n]*) \{\n(.*)\n\}[^\n]*;\n", code, re.DOTALL)
    yield ".PP"
    if kind and "{" not in kind[2]:
        yield bold(kind[1])
    else:
        code = re.sub(r"\n\{\n.*", ";", code, flags=re.DOTALL) if re.search(r"\n\{\n", code) else code
        code = re.sub(r"\)\s*\\\n.*", ")", code, flags=re.DOTALL) if code.startswith("#define") else code
        yield ".nf"
        yield from (bold(line) for line in code.strip().removeprefix("static inline ").expandtabs(4).splitlines())
        yield ".fi"
    if comment:
        yield ".RS 4"
        yield from prose(comment)
        yield ".RE"
    if kind and "{" not in kind[2]:
        yield from members(kind[2] + "\n")


def declarations(text):
    for comment, code in pieces(without_cpp(text)):
        heading = re.fullmatch(r"-{4} (.*?) -{4}", " ".join(comment))
        if "vbn__" in code.partition("{")[0]:
            continue
        if code:
            yield from declaration(comment, code)
        elif heading:
            yield f".SS {roff(heading[1])}"
        else:
            yield ".PP"
            yield from prose(comment)


def headers_page(number, name, title, version):
    yield f'.TH {name.upper()} {number} "" "verbena {version}" "Verbena"'
    yield from LEFT
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
    yield from prose(conventions)
    yield ".SH HEADERS"
    yield "Each has a page of its own, with every function's units, ownership, thread and errors."
    for header in headers:
        yield ".TP"
        yield f".BR {page_name(header)} (3)"
        yield roff(comment_of(header)[0])
    yield from see_also("verbena (1)")


def header_page(version, header):
    what, more = comment_of(header)
    text = read(header)
    yield from headers_page(3, page_name(header), what, version)
    yield f".B #include <verbena/{header.split('/')[-1]}>"
    if more:
        yield ".SH DESCRIPTION"
        yield from prose(more)
    yield ".SH TYPES AND FUNCTIONS"
    yield from declarations(text[text.index("*/") + 2:])
    yield from see_also("verbena (7)")


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

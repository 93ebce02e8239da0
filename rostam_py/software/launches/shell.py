"""Shell scripts as text: what the last training command would be called with. Nothing is run.

Model: assignments and arrays of the file, ${NAME:-default}, $((arithmetic)) and comparisons in ``if`` are evaluated;
what comes from outside ($1, other commands' output) stays as it is written. Loops, functions and ``case`` are passed
over: a launch that depends on them is not read.
"""

import ast
import operator
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rostam_py.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_]\w*")
_DESCRIPTOR = re.compile(r"\d(?=[<>])")
_REDIRECTION = re.compile(r"[<>]{1,3}[&|]?[ \t]*")
_HERE = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)['\"]?")
_IN_TEXT = re.compile(r"\$\{([^{}]*)\}|\$([A-Za-z_]\w*)")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_OPERATORS = ("&&", "||", ";;", ";", "|", "&", "\n")
_LAUNCHERS = ("torchrun", "deepspeed", "python", "python3", "srun", "accelerate", "composer", "torch.distributed.run")
_TRAINED_BY = re.compile(r"(^|/)(run_train\.sh|\S+\.py)$|^torchtitan\.")
_MOST_WORDS = 20_000
_MOST_DEPTH = 30
_PREFIXES = ("export", "declare", "local", "readonly")


@dataclass
class _Piece:
    """A part of a word. kind: "text", "variable", "arithmetic" or "command"; is_quoted: no blanks divide it."""

    kind: str
    text: str
    is_quoted: bool


@dataclass
class _Word:
    pieces: list[_Piece] = field(default_factory=list)
    array: "list[_Word] | None" = None  # of NAME=( ... )
    text: str | None = None  # of a here-document
    is_target: bool = False  # the file that a command's output goes to

    @property
    def head(self) -> str:
        """The text before anything that is expanded."""
        return self.pieces[0].text if self.pieces and self.pieces[0].kind == "text" else ""


@dataclass(frozen=True)
class Script:
    """The training command of a script: its words behind the launcher, and the variables that it would see.

    files: what the script writes by here-documents, as ``cat <<EOF > config.json`` does, by name.
    """

    words: list[str]
    variables: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)


def read_script(text: str, variables: Mapping[str, str]) -> Script:
    """Return the training command of a script; of text without one its words, an argument list.

    Args: variables: of the caller, in place of those that the file does not set.
    Raises: ConfigError for a script without words, quotes that do not end, and too many words.
    """
    shell = _Shell(dict(variables))
    tokens = list(_Tokens(text).all())
    shell.run(tokens)
    if shell.command is not None:
        return Script(shell.command, shell.flat, shell.files)
    words = [word for line in shell.others for word in line]
    if not any(word.startswith("-") or "=" in word for word in words):
        raise ConfigError("it holds neither a training command nor arguments, such as --num-layers 32")
    return Script(words, shell.flat, shell.files)


class _Tokens:
    """Words and operators of a script."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0

    def all(self) -> Iterator[_Word | str]:
        """Yield words, and operators as text."""
        count = 0
        while self._at < len(self._text):
            count += 1
            if count > _MOST_WORDS:
                raise ConfigError(f"it has more than {_MOST_WORDS:,} words")
            rest = self._text
            char = rest[self._at]
            if rest.startswith("\\\n", self._at):
                self._at += 2
                self._skip_comment_line()
            elif char in " \t":
                self._at += 1
            elif char == "#":
                self._at = self._end_of_line()
            elif found := next((one for one in _OPERATORS if rest.startswith(one, self._at)), None):
                self._at += len(found)
                yield found
            elif char in "<>":
                yield from self._redirection()
            elif char in "()":
                self._at += 1
                yield char
            elif descriptor := _DESCRIPTOR.match(rest, self._at):
                self._at = descriptor.end()  # of 2>&1
            else:
                yield self._word()

    def _redirection(self) -> Iterator[_Word]:
        """Yield the text of a here-document, or the file that output goes to; pass over other redirections."""
        if found := _HERE.match(self._text, self._at):
            begin = self._text.find("\n", found.end()) + 1 or len(self._text)
            end = re.compile(rf"^\t*{re.escape(found[2])}$", re.MULTILINE).search(self._text, begin)
            text = self._text[begin : end.start() if end else len(self._text)]
            self._text = self._text[:begin] + (self._text[end.end() :] if end else "")
            self._at = found.end()
            yield _Word([_Piece("text", "", bool(found[1]))], text=text)
            return
        found = _REDIRECTION.match(self._text, self._at)
        is_output = self._text[self._at] == ">"
        self._at = found.end() if found else self._at + 1
        if self._text[self._at : self._at + 1] not in ("", "\n", ";", "|", "&", "<", ">", "(", ")"):
            target = self._word()
            target.is_target = True
            if is_output:
                yield target

    def _skip_comment_line(self) -> None:
        """Pass over a comment behind a continued line, which people leave there."""
        found = re.compile(r"[ \t]*#[^\n]*\n").match(self._text, self._at)
        if found:
            self._at = found.end()

    def _end_of_line(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _word(self) -> _Word:
        word = _Word()
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char in " \t\n;|&<>)" or text.startswith("\\\n", self._at):
                break
            if char == "(":
                if _ASSIGNED.fullmatch(word.head) and len(word.pieces) == 1:
                    self._at += 1
                    word.array = self._array()
                break
            if char == "'":
                self._add(word, "text", self._until("'", self._at + 1), True)
            elif char == '"':
                self._quoted(word)
            elif char == "$":
                self._dollar(word, False)
            elif char == "`":
                self._add(word, "command", self._until("`", self._at + 1), False)
            elif char == "\\":
                self._add_text(word, text[self._at + 1 : self._at + 2], True)
                self._at += 2
            else:
                self._add_text(word, char, False)
                self._at += 1
        return word

    def _array(self) -> list[_Word]:
        found: list[_Word] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == ")":
                self._at += 1
                return found
            if char in " \t\n" or self._text.startswith("\\\n", self._at):
                self._at += 1 if char != "\\" else 2
            elif char == "#":
                self._at = self._end_of_line()
            elif char in ";|&<>(":
                raise ConfigError(f"an array holds {char!r}")
            else:
                found.append(self._word())
        raise ConfigError("an array, NAME=(, does not end")

    def _quoted(self, word: _Word) -> None:
        self._at += 1
        text = self._text
        word.pieces.append(_Piece("text", "", True))
        while self._at < len(text):
            char = text[self._at]
            if char == '"':
                self._at += 1
                return
            if char == "\\" and text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`", "\n"):
                follows = text[self._at + 1]
                self._add_text(word, "" if follows == "\n" else follows, True)
                self._at += 2
            elif char == "$":
                self._dollar(word, True)
            elif char == "`":
                self._add(word, "command", self._until("`", self._at + 1), True)
            else:
                self._add_text(word, char, True)
                self._at += 1
        raise ConfigError("a quoted text does not end")

    def _dollar(self, word: _Word, is_quoted: bool) -> None:
        text, at = self._text, self._at
        if text.startswith("$((", at):
            end = self._closing(at + 1)
            self._add(word, "arithmetic", text[at + 3 : end - 1], is_quoted, end + 1)
        elif text.startswith("$(", at):
            end = self._closing(at + 1)
            self._add(word, "command", text[at : end + 1], is_quoted, end + 1)
        elif text.startswith("${", at):
            end = self._closing(at + 1)
            self._add(word, "variable", text[at + 2 : end], is_quoted, end + 1)
        elif found := re.compile(r"[A-Za-z_]\w*|[0-9@*#?]").match(text, at + 1):
            self._add(word, "variable", found[0], is_quoted, found.end())
        else:
            self._add_text(word, "$", is_quoted)
            self._at += 1

    def _closing(self, at: int) -> int:
        """Return the place of the bracket that closes the one at a place."""
        opening = self._text[at]
        closing = {"(": ")", "{": "}"}[opening]
        depth = 0
        for place in range(at, len(self._text)):
            depth += {opening: 1, closing: -1}.get(self._text[place], 0)
            if depth == 0:
                return place
        raise ConfigError(f"${opening} does not end")

    def _until(self, mark: str, begin: int) -> str:
        end = self._text.find(mark, begin)
        if end < 0:
            raise ConfigError(f"a text in {mark} does not end")
        self._at = end + 1
        return self._text[begin:end]

    def _add(self, word: _Word, kind: str, text: str, is_quoted: bool, end: int | None = None) -> None:
        word.pieces.append(_Piece(kind, text, is_quoted))
        if end is not None:
            self._at = end

    def _add_text(self, word: _Word, text: str, is_quoted: bool) -> None:
        last = word.pieces[-1] if word.pieces else None
        if last is not None and last.kind == "text" and last.is_quoted == is_quoted:
            last.text += text
        else:
            word.pieces.append(_Piece("text", text, is_quoted))


class _Shell:
    """Variables of a script, and its commands."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given
        self._scalars: dict[str, str] = {}
        self._arrays: dict[str, list[str]] = {}
        self.command: list[str] | None = None
        self.others: list[list[str]] = []
        self.files: dict[str, str] = {}

    @property
    def flat(self) -> dict[str, str]:
        """Every variable as text."""
        return {**self._given, **self._scalars, **{name: " ".join(words) for name, words in self._arrays.items()}}

    def run(self, tokens: list[_Word | str]) -> None:
        """Follow the commands, in the branches whose conditions hold."""
        taken: list[list[bool]] = []  # of each open if: whether this branch runs, whether one has run
        skipped = 0  # open loops, functions and cases
        for commands in _lists(tokens):
            line = commands[0][1]
            first = line[0].head if len(line[0].pieces) == 1 else ""
            if first in ("for", "while", "until", "case", "function", "select", "{") or _is_function(line):
                skipped += 1
            if skipped:
                skipped -= first in ("done", "esac", "}")
                continue
            rest = [("", line[1:]), *commands[1:]]
            if first == "if":
                is_open = all(one[0] for one in taken)
                holds = is_open and self._follow(rest, is_tested=True)
                taken.append([holds, holds])
            elif first == "elif" and taken:
                is_next = not taken[-1][1] and all(one[0] for one in taken[:-1])
                is_next = is_next and self._follow(rest, is_tested=True)
                taken[-1] = [is_next, taken[-1][1] or is_next]
            elif first == "else" and taken:
                is_next = not taken[-1][1] and all(one[0] for one in taken[:-1])
                taken[-1] = [is_next, True]
                self._follow(rest if is_next else [])
            elif first == "fi" and taken:
                taken.pop()
            elif all(one[0] for one in taken):
                self._follow(rest if first in ("then", "do") else commands)

    def _follow(self, commands: list[tuple[str, list[_Word]]], *, is_tested: bool = False) -> bool:
        """Follow a list of commands as far as its joints let it; return whether the last one that ran succeeds.

        Model: of tests that is known, any other command succeeds; with ``is_tested`` none of the others does, for what
            they would say is not known.
        """
        holds = True
        for joint, words in commands:
            if joint and (joint == "&&") != holds:
                continue
            is_test = bool(words) and words[0].head in ("[", "[[", "test", "!")
            holds = self._holds(words) if is_test or is_tested else True
            if not is_test and not is_tested:
                self._simple(words)
        return holds

    def _simple(self, line: list[_Word]) -> None:
        """Follow a command: assignments, or a program with its words."""
        self._keep_file(line)
        line = [one for one in line if one.text is None and not one.is_target]
        while line and (line[0].head in _PREFIXES and len(line[0].pieces) == 1):
            line = [one for one in line[1:] if not one.head.startswith("-")]
        while line and (found := _ASSIGNED.match(line[0].head)) and not line[0].pieces[0].is_quoted:
            self._assign(line[0], found)
            line = line[1:]
        words = _with_inner([word for one in line for word in self._expanded(one)])
        if len(words) > _MOST_WORDS:
            raise ConfigError(f"a command has more than {_MOST_WORDS:,} words")
        if not words or words[0] in (
            "echo",
            "cd",
            "mkdir",
            "source",
            ".",
            "exit",
            "set",
            "pip",
            "rm",
            "[",
            "[[",
            "shift",
        ):
            return
        program = next((place for place, word in enumerate(words) if _TRAINED_BY.search(word)), None)
        is_launcher = any(word.rpartition("/")[2] in _LAUNCHERS for word in words[:4])
        if program is None and not is_launcher:
            self.others.append(words)
        elif self.command is None or len(words) >= len(self.command) or program is not None:
            self.command = words

    def _keep_file(self, line: list[_Word]) -> None:
        """Keep a here-document that is written to a file, with its variables."""
        text = next((one for one in line if one.text is not None), None)
        names = [name for one in line if one.is_target for name in self._expanded(one)]
        if text is None or text.text is None or len(names) != 1:
            return
        is_literal = text.pieces[0].is_quoted
        value = text.text if is_literal else _IN_TEXT.sub(lambda one: self._variable(one[1] or one[2]), text.text)
        if len(value) > 2**20:
            raise ConfigError(f"the text for {names[0][:60]!r} has more than {2**20:,} letters")
        self.files[names[0]] = value

    def _assign(self, word: _Word, found: "re.Match[str]") -> None:
        name, adds = found[1], bool(found[2])
        if word.array is not None:
            items = [item for one in word.array for item in self._expanded(one)]
            before = self._arrays.get(name, []) if adds else []
            self._arrays[name] = before + items
            if len(self._arrays[name]) > _MOST_WORDS:
                raise ConfigError(f"{name} has more than {_MOST_WORDS:,} words")
            self._scalars.pop(name, None)
            return
        rest = [_Piece("text", word.head[found.end() :], True), *word.pieces[1:]]
        value = "".join(text for piece in rest for text in [self._value(piece)])
        if name in self._given and f"${{{name}" not in value and name not in self._scalars and not adds:
            value = self._given[name]
        whole = self._scalars.get(name, "") + value if adds else value
        if len(whole) > 2**20:
            raise ConfigError(f"{name} has more than {2**20:,} letters")
        self._arrays.pop(name, None)
        self._scalars[name] = whole

    def _expanded(self, word: _Word) -> list[str]:
        """Return the words that one becomes: unquoted values are divided at blanks, arrays give an item each."""
        found, is_open = [""], False
        for piece in word.pieces:
            name = _array_name(piece)
            if name is not None and name in self._arrays:
                items = self._arrays[name]
                parts = list(items) if piece.is_quoted else [one for item in items for one in _divided(item)]
            elif piece.is_quoted or piece.kind == "text":
                parts = [self._value(piece)]
            else:
                parts = _divided(self._value(piece))
            if not parts:
                continue
            found[-1] += parts[0]
            found += parts[1:]
            is_open = True
        return found if is_open and (len(found) > 1 or found[0] or any(one.is_quoted for one in word.pieces)) else []

    def _value(self, piece: _Piece, depth: int = 0) -> str:
        if piece.kind == "text":
            return piece.text
        if piece.kind == "command":
            return piece.text if piece.text.startswith("$") else f"$({piece.text})"
        if piece.kind == "arithmetic":
            return self._arithmetic(piece.text, depth)
        return self._variable(piece.text, depth)

    def _variable(self, text: str, depth: int = 0) -> str:
        if depth > _MOST_DEPTH:
            raise ConfigError(f"${{{text[:40]}}} is nested more than {_MOST_DEPTH} times")
        found = re.fullmatch(r"([A-Za-z_]\w*|\d+|[@*])(?:\[[@*]\])?(?:(:?[-=+?])(.*))?", text, re.DOTALL)
        if found is None:
            return f"${{{text}}}"
        name, sign, other = found[1], found[2] or "", found[3] or ""
        value = self.flat.get(name) if name not in self._scalars else self._scalars[name]
        if sign.endswith(("-", "=")):
            return value if value else self._inner(other, depth + 1)
        if sign.endswith("+"):
            return self._inner(other, depth + 1) if value else ""
        return f"${name}" if value is None else value

    def _inner(self, text: str, depth: int) -> str:
        """Return a default's text with what is in it expanded."""
        if depth > _MOST_DEPTH:
            raise ConfigError(f"{text[:40]!r} is nested more than {_MOST_DEPTH} times")
        words = [one for one in _Tokens(text).all() if isinstance(one, _Word)]
        return " ".join("".join(self._value(piece, depth) for piece in word.pieces) for word in words)

    def _arithmetic(self, text: str, depth: int = 0) -> str:
        plain = re.sub(r"\$\{([^{}]*)\}|\$?([A-Za-z_]\w*)|\$(\d)",
                       lambda one: self._variable(one[1] or one[2] or one[3], depth + 1), text)  # fmt: skip
        try:
            return str(_computed(ast.parse(plain.strip(), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
            return f"$(({text}))"

    def _holds(self, line: list[_Word]) -> bool:
        """Return whether a condition holds; one that asks for more than the file says does not."""
        words = [" ".join(self._expanded(one)) for one in line]
        words = [word for word in words if word not in ("[", "[[", "]", "]]", "test")]
        if not words:
            return False
        if words[0] == "!":
            return not self._holds(line[:1] + line[2:]) if len(line) > 2 else False
        if len(words) == 1 and words[0] in ("-n", "-z"):
            return words[0] == "-z"
        if len(words) == 2 and words[0] in ("-n", "-z"):
            is_set = bool(words[1]) and not words[1].startswith("$")
            return is_set == (words[0] == "-n")
        if len(words) == 3 and words[1] in ("=", "==", "!="):
            return (words[0].strip('"') == words[2].strip('"')) != (words[1] == "!=")
        compare = {"-eq": operator.eq, "-ne": operator.ne, "-gt": operator.gt, "-ge": operator.ge, "-lt": operator.lt,
                   "-le": operator.le}  # fmt: skip
        if len(words) == 3 and words[1] in compare:
            try:
                return bool(compare[words[1]](int(words[0]), int(words[2])))
            except ValueError:
                return False
        return False


def _lists(tokens: list[_Word | str]) -> Iterator[list[tuple[str, list[_Word]]]]:
    """Yield the lists of commands that && and || join: the joint before each, and its words.

    Brackets of subshells are passed over.
    """
    found: list[tuple[str, list[_Word]]] = []
    joint, words = "", list[_Word]()
    for token in [*tokens, ";"]:
        if isinstance(token, _Word):
            words.append(token)
        elif token == "(" and words:
            words.append(_Word([_Piece("text", "(", False)]))
        elif token not in ("(", ")"):
            if words:
                found.append((joint, words))
            elif token == "\n" and found and joint:
                continue  # a line may end behind a joint
            joint, words = (token if token in ("&&", "||") else ""), []
            if not joint and found:
                yield found
                found = []


def _is_function(line: list[_Word]) -> bool:
    return len(line) > 1 and line[1].head == "(" and bool(_NAME.fullmatch(line[0].head))


def _with_inner(words: list[str]) -> list[str]:
    """Return a command's words, those that it hands to another shell (bash -c "...") in their place."""
    found: list[str] = []
    for place, word in enumerate(words):
        is_command = place > 0 and words[place - 1] == "-c" and " " in word
        found += _split(word) if is_command else [word]
    return found


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # quotes that do not end
        return command.split()


def _divided(value: str) -> list[str]:
    """Return the words of an unquoted value; another command's output, which is not known, stays one."""
    return re.findall(r"(?:\$\([^()]*\)|\S)+", value)


def _array_name(piece: _Piece) -> str | None:
    if piece.kind != "variable":
        return None
    found = re.fullmatch(r"([A-Za-z_]\w*)(\[[@*]\])?", piece.text)
    return found[1] if found else None


_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
           ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}  # fmt: skip


def _computed(node: ast.expr) -> int:
    """Return the value of integers and their sums, products and quotients. Raises: ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < 2**53:
        return int(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        found = int(_BINARY[type(node.op)](_computed(node.left), _computed(node.right)))
        if abs(found) < 2**53:
            return found
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_computed(node.operand)
    raise ValueError("no arithmetic of integers")

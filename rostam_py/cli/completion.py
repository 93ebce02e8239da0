"""``rostam completion SHELL``: a script that completes commands, options, keys, groups and names as they are typed.

Example:
    eval "$(rostam completion bash)"          # in ~/.bashrc; zsh likewise in ~/.zshrc, after compinit
    rostam completion fish | source           # in ~/.config/fish/config.fish

The scripts ask ``rostam completion query WORD ...`` for what may replace the last word. Names come from our registries
without loading Hydra, keys from Hydra's own completion of the composed configuration.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rostam_py.cli.choices import CACHE_ACTIONS, GROUPS, LIST_KINDS, experiment_command, group_choices
from rostam_py.cli.commands import COMMANDS
from rostam_py.errors import UnknownNameError

_BASH = r"""# rostam: completion for bash
_rostam() {
    local command="${COMP_WORDS[0]/#\~/$HOME}" piece word candidate
    local -a words=()
    local last=-1 i
    # Bash splits at "=" and ":" (COMP_WORDBREAKS): put the pieces of a word together again.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        piece="${COMP_WORDS[i]}"
        if ((last >= 0)) && [[ "$piece" == [=:]* || "${words[last]}" == *[=:] ]]; then
            words[last]+="$piece"
        else
            last=$((last + 1))
            words[last]="$piece"
        fi
    done
    # It replaces the piece at the cursor only, so take from each candidate what stands before that.
    word="${words[last]}"
    piece="${COMP_WORDS[COMP_CWORD]}"
    [[ "$piece" == [=:] ]] && piece=""
    local before="${word:0:${#word}-${#piece}}"
    COMPREPLY=()
    while IFS= read -r candidate; do
        candidate="${candidate#"$before"}"
        COMPREPLY+=("${candidate// /\\ }")
    done < <("$command" completion query "${words[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *[=./:] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o default -F _rostam rostam
"""

_ZSH = r"""#compdef rostam
# rostam: completion for zsh
_rostam() {
    local -a found open closed
    found=("${(@f)$("${words[1]/#\~/$HOME}" completion query "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    open=("${(@M)found:#*[=./:]}")
    closed=("${(@)found:#*[=./:]}")
    (($#open)) && compadd -S '' -a open
    (($#closed)) && compadd -a closed
    (($#found)) || _files
}
compdef _rostam rostam
"""

_FISH = r"""# rostam: completion for fish
function __rostam_complete
    set -l words (commandline -opc)
    $words[1] completion query $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c rostam -f -a '(__rostam_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_OPTIONS = ("--json", "--help")
_BOOLEANS = ("false", "true")


def completion(arguments: list[str], as_json: bool = False) -> int:
    """Print a shell's script, or answer its query. Returns the exit status."""
    if arguments[:1] == ["query"]:
        for candidate in candidates(arguments[1:]):
            print(candidate)
        return 0
    if len(arguments) != 1 or arguments[0] not in SCRIPTS:
        given = " ".join(arguments) or "missing"
        raise UnknownNameError(f"the shell is {given}; rostam completion takes one of: {', '.join(SCRIPTS)}")
    print(SCRIPTS[arguments[0]], end="")
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """Return what may stand in place of the last word, given those before it ("rostam" left out).

    Cost: some 10 ms for commands, options and presets, 0.3 s for other names, whose schema is loaded; keys compose the
        configuration, some 0.6 s.
    """
    words = list(words) or [""]
    *before, word = [one.lstrip("'\"") for one in words]
    if not before:
        return _starting(word, [*COMMANDS, "--help", "--version"])
    command = before[0]
    if command not in COMMANDS:
        return []
    if word.startswith("-"):
        return _starting(word, [*COMMANDS[command].options, *_OPTIONS])
    plain: dict[str, Callable[[], Iterable[str]]] = {
        "list": lambda: LIST_KINDS, "cache": lambda: CACHE_ACTIONS, "completion": lambda: SCRIPTS,
        "help": lambda: COMMANDS, "reproduce": _experiments, "profile": lambda: _values_of("model", "profile") or (),
    }  # fmt: skip
    if command == "report" and len(before) == 1:
        return []  # a folder: the shell knows them
    if command == "capture":
        return []  # a program: the shell knows its files
    if command == "export" and len(before) == 1:
        return _starting(word, _trace_formats())
    if command in (
        "compare",
        "import",
        "export",
    ):  # of folders and files the shell knows, too; overrides are those of a run
        return _override("run", before[1:], word) if word else []
    if command in plain and "=" not in word and (command != "profile" or len(before) == 1):
        return _starting(word, plain[command]())
    if command not in plain or command in ("profile", "reproduce"):
        return _override(command, before[1:], word)
    return []


def _trace_formats() -> list[str]:
    from rostam_py.traces.writers import TRACE_WRITERS

    return TRACE_WRITERS.names()


def _experiments() -> list[str]:
    from rostam_py.errors import ConfigError
    from rostam_py.reproduction.experiment import experiments_in

    try:
        return list(experiments_in())
    except ConfigError:
        return []


def _override(command: str, before: list[str], word: str) -> list[str]:
    """Return completions of ``key=value``, or of the key."""
    key, equals, value = word.partition("=")
    if key.startswith("software.rules."):
        return _rules(key, value if equals else None)
    if equals:
        names = _values_of(key, command)
        if names is not None and not value.startswith((".", "/")):
            done, comma, part = value.rpartition(",")
            given = set(done.split(","))
            return [f"{key}={done}{comma}{name}" for name in _starting(part, names) if name not in given]
        if value.startswith((".", "/")):
            return [f"{key}={path}" for path in _paths(value)]
    elif "." in key:
        from rostam_py.cli.schema import command_schema
        from rostam_py.spec.lookup import inner_keys

        section = key.rpartition(".")[0]
        if inner := inner_keys(section, command_schema(command)):
            return _starting(word, [f"{section}.{name}=" for name in inner])
    return _keys(command, before, word)


def _rules(key: str, value: str | None) -> list[str]:
    """Return rules that start like a key, or values of one. Args: value: behind "=", None without."""
    from rostam_py.cli.usage import rules
    from rostam_py.software.stack import choices_of_rule

    known = [rule for rule, _, _ in rules()]
    if value is None:
        return _starting(key, [f"software.rules.{rule}=" for rule in known])
    rule = key.removeprefix("software.rules.")
    choices = choices_of_rule(rule) if rule in known else ()
    return [f"{key}={one}" for one in _starting(value, map(str, choices))]


def _paths(value: str) -> list[str]:
    """Return files and, with a slash, folders that start like ``value``: models and tables of one's own."""
    from hydra.plugins.completion_plugin import CompletionPlugin

    found = CompletionPlugin.complete_files(value.removesuffix("/") if Path(value).is_dir() else value)
    return sorted(f"{path}/" if Path(path).is_dir() else path for path in found)


def _values_of(key: str, command: str) -> Iterable[str] | None:
    """Return the names that a key of a command takes, None if it takes none that we know."""
    key = key.lstrip("+")
    if key == "experiment":
        return [name for name in group_choices(key) if experiment_command(name) in ("run", command)]
    if key in GROUPS:
        return group_choices(key)
    if key == "machine":
        from rostam_py.machines import MACHINES

        return MACHINES.names()
    from rostam_py.cli.schema import command_schema
    from rostam_py.spec.lookup import choices_of, is_list

    schema = command_schema(command)
    names = choices_of(key, schema)
    return [f"[{name}]" for name in names] if names and is_list(key, schema) else names


def _keys(command: str, before: list[str], word: str) -> list[str]:
    """Return what Hydra's completion finds in the configuration that the groups chosen so far make."""
    from hydra import initialize_config_module
    from hydra.core.global_hydra import GlobalHydra
    from hydra.plugins.completion_plugin import DefaultCompletionPlugin

    from rostam_py.cli.compose import CONFIG_MODULE
    from rostam_py.cli.schema_store import store_schemas

    store_schemas()
    chosen = [one.split(",")[0] for one in before if one.partition("=")[0] in GROUPS]
    chosen = [one for one in chosen if one.partition("=")[2] in group_choices(one.partition("=")[0])]
    with initialize_config_module(CONFIG_MODULE, version_base="1.3"):
        plugin = DefaultCompletionPlugin(GlobalHydra.instance().config_loader())
        found = plugin._query(config_name=command, line=" ".join([*chosen, word or " "]))
    found += _inner_keys(command, word)
    found = [one for one in found if _belongs(one, command, wants_hydra="--multirun" in before and bool(word))]
    found = _with_lists_closed(found, command, chosen)
    if "=" in word and all(one.partition("=")[2] in _BOOLEANS for one in found) and found:
        key = word.partition("=")[0]
        found = _starting(word, [f"{key}={value}" for value in _BOOLEANS])
    return found


def _inner_keys(command: str, word: str) -> list[str]:
    """Return keys below a name, model.sequence_length, which Hydra does not know."""
    from dataclasses import fields

    from rostam_py.cli.schema import command_schema

    schema = command_schema(command)
    known = fields(schema) if schema is not None else ()
    return _starting(word, [f"{one.name}.{inner}=" for one in known for inner in one.metadata.get("inner", ())])


def _belongs(candidate: str, command: str, *, wants_hydra: bool) -> bool:
    """Say whether a candidate of Hydra's is for this command: it offers groups, and its own keys, everywhere."""
    if candidate.startswith("hydra"):
        return wants_hydra
    from rostam_py.cli.schema import command_schema, groups_of

    key = candidate.removesuffix("=")
    return key not in GROUPS or key in groups_of(command_schema(command))


def _with_lists_closed(found: list[str], command: str, chosen: list[str]) -> list[str]:
    """Return keys of lists with "=" in place of Hydra's ".": an override sets a list as a whole."""
    if not any(one.endswith(".") for one in found):
        return found
    from omegaconf import OmegaConf

    from rostam_py.cli.compose import composed

    config = composed(command, tuple(chosen))

    def is_list(key: str) -> bool:
        section, _, name = key.rpartition(".")
        node = OmegaConf.select(config, section) if section else config
        return OmegaConf.is_dict(node) and name in node and OmegaConf.is_list(node._get_node(name))

    return [f"{one[:-1]}=" if one.endswith(".") and is_list(one[:-1]) else one for one in found]


def _starting(word: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(word))

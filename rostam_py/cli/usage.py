"""``rostam COMMAND --help``: examples, keys with defaults and meaning, and what the groups offer, from the schemas."""

import dataclasses
import difflib
import inspect
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rostam_py.cli.capture_options import OPTIONS
from rostam_py.cli.choices import (
    CACHE_ACTIONS,
    LIST_KINDS,
    WITH_SCHEMAS,
    check_choice,
    default_choices,
    group_choices,
    preset_base,
    preset_values,
    schema_in,
)
from rostam_py.errors import ConfigError
from rostam_py.field_words import by_key, meanings_of, plain, words_like

EXAMPLES = {
    "run": (
        "rostam run model=resnet50 fabric=torus_8x8 global_batch=4096 convergence=resnet50_mlperf",
        "rostam run model=gpt_125m machine=dgx_h100 machine.servers=4 global_batch=256",
        "rostam run experiment=quick strategy.precision=bf16_mixed",
        "rostam run model=gpt_125m cost=calibrated sensitivity=true report=true",
        "rostam run model=gpt_125m variability.devices=5% variability.samples=50 report=true",
        "rostam run program=program.json machine=dgx_h100 timeline=true     a program written by hand",
        "rostam run from=train.sh machine=dgx_h100    a launch script or configuration (rostam import train.sh)",
        "rostam run fabric=torus --help               list the keys of one fabric, too",
        "rostam run --multirun fabric=tree_64,torus_8x8 strategy.tp=1,8",
    ),
    "import": (
        "rostam import train_mixtral.sh machine=dgx_h100",
        "rostam import traces/run.0.et out=program.json    a Chakra trace, which becomes a program",
        "rostam import llama3_405b.toml num_accelerators=512 --json",
        "rostam import train.sh from.NNODES=4         set a variable that the script takes from outside",
    ),
    "export": ("rostam export chakra program=program.json machine=dgx_h100 to=traces/run",),
    "fleet": (
        "rostam fleet model=llama3_8b machine=dgx_h100 machine.servers=16 strategy.shard=3 global_batch=256",
        "rostam fleet model=gpt_1_3b fabric=cluster_64 strategy.tp=8 global_batch=512 fleet.faults=faults.csv"
        " fleet.spares=2",
        "rostam fleet fleet.jobs=jobs.csv machine=dgx_h100 machine.servers=24 fleet.order=backfill",
        "rostam fleet fleet.jobs=families 'fleet.draw={count: 2000, load: 0.7, unit: 4}' fabric=hx2mesh_16x16",
    ),
    "capture": (
        "rostam capture --world 64 -- python train.py --layers 32",
        "rostam capture --out llama.json.gz -- torchrun --nnodes 8 --nproc-per-node 8 train.py",
        "rostam capture --world 512 --ranks 0,8 --gpu a100_80gb -- python -m package.train",
        "rostam capture --world 8 --stub apex --assume-bandwidth triton:my_kernel -- python train.py",
    ),
    "search": (
        "rostam search model=transformer_350m fabric=cluster_64 strategy.precision=bf16_mixed",
        "rostam search model=llama3_8b fabric=cluster_64 search.axes=all search.batches=[256] accelerator=h100_80gb",
        "rostam search model=llama3_8b 'search.axes={tp:[1,2,4,8],shard:[1,3],cp:null}' search.batches=[256]",
    ),
    "profile": ("rostam profile resnet50 batches=[2,8] device=cpu out=resnet50.costs.json",),
    "demo": ("rostam demo short=true num_accelerators=64",),
    "sweep": (
        "rostam sweep model=resnet50,gpt_125m fabric=tree_64,torus_8x8 'fabric.accelerator_bandwidth=400 Gb/s,1 Tb/s'",
        "rostam sweep experiment=sip_ml_fig5 --dry-run",
        "rostam sweep experiment=quick_sweep sweep.backend=process sweep.workers=2",
    ),
    "collective": (
        "rostam collective sizes.begin='8 B' sizes.end='1 GiB' sizes.factor=4     nccl-tests' -b 8 -e 1G -f 4",
        "rostam collective machine=dgx_h100 machine.servers=4 sizes.begin='1 MiB'",
        "rostam collective collective=all_to_all ranks=[0,8,16,24] fabric=tree_64 fabric.server_size=8",
        "rostam collective algorithm=ring ranks=8 'sizes.list=[1 MiB,64 MiB]' type=bfloat16 out=ring.csv",
        "rostam collective fabric=torus --help        list the keys of one fabric, too",
    ),
    "flows": (
        "rostam flows incast.cm fabric=tree_64 fabric.link_bandwidth='100 Gb/s'",
        "rostam flows flows.csv fabric=torus_8x8 fidelity=[flow,packet] routing=spray      engines side by side",
        "rostam flows flows.csv fabric=clos_2048 'controllers=[{name: path_assignment}]' out=times.csv",
    ),
    "check": (
        "rostam check fabric=torus fabric.dims=[8,8] routing=turns       the proof, and the virtual channels used",
        "rostam check fabric=torus fabric.dims=[8,8] routing=spray       the links that wait for each other; status 1",
        "rostam check fabric=slim_fly fabric.q=5 routing=layers virtual_channels=one",
        "rostam check fabric=hx2mesh_8x8 routing=up_down failures.links=5% failures.switches=2 failures.seed=3 --json",
        "rostam check fabric=slim_fly fabric.q=5 write_cables=plan.csv   the plan, columns src and dst",
        "rostam check fabric=slim_fly fabric.q=5 cables=found.csv        what is missing, extra or has a wrong end",
    ),
    "compare": (
        "rostam compare runs/first runs/second",
        "rostam compare strategy.tp=2 'strategy.tp=4 strategy.pp=2' model=gpt_125m global_batch=256",
        "rostam compare runs/first 'fabric=torus_8x8 fabric.accelerator_bandwidth=800 Gb/s' model=gpt_125m",
        "rostam compare '' machine.launch_latency=0 model=resnet50 --json",
    ),
    "validate": (
        "rostam validate                              all tables: minutes, the first rows in seconds",
        "rostam validate tables=V1,V2 alternatives=true",
        "rostam validate rows=*70B*,V1/* cost_model=roofline --json",
        "rostam validate file=mine.csv report=true",
    ),
    "reproduce": (
        "rostam reproduce --all                       every experiment, most from the points that it ships",
        "rostam reproduce hammingmesh_table2_cost sip_ml_fig7",
        "rostam reproduce sip_ml_fig7 rerun=true out=runs/anew",
    ),
    "report": ("rostam report runs/my_sweep formats=[pdf,svg]",),
    "list": ("rostam list presets experiments", "rostam list fabrics --json"),
    "cache": ("rostam cache list", "rostam cache clear"),
    "completion": ('eval "$(rostam completion bash)"', "rostam completion fish | source"),
}
_ARGUMENTS = {
    "capture": " [--json] [option ...] -- PROGRAM",
    "profile": " MODEL",
    "compare": " A B",
    "import": " FILE",
    "export": " FORMAT",
    "report": " DIR",
    "reproduce": " NAME ... | --all",
    "list": " [KIND ...]",
    "cache": " list | clear",
    "completion": " bash | zsh | fish",
}
_ABOUT = {
    "capture": "Run your own training program, unmodified, without a GPU or a network, and write down what its ranks"
    " run and send in one step: a program file for rostam run program=FILE. The program really runs, on this computer"
    " and with your rights; only its tensors on cuda are shapes alone, and its process groups send nothing. Each"
    " distinct rank runs once, and the step must be the one before once more. Needs torch 2.13 for CPUs and a C++"
    " compiler. An op without a cost is an error that names it; --assume-bandwidth prices it by its bytes.",
    "list": "List the names that a configuration can use. Without a kind the kinds are listed.",
    "cache": "List or clear the trace cache. It keeps the graphs of models that were given by name, so that the next"
    " run needs neither torch nor a trace. An entry is used while the model's source files, rostam's code and the"
    " versions of torch, Python and packages are unchanged. Its folder is $ROSTAM_CACHE_DIR/traces, else rostam/traces"
    " in $XDG_CACHE_HOME or ~/.cache. trace_cache=false (sweep.trace_cache=false) disables it.",
    "compare": "Compare two runs: differences in their configurations, time by kind, critical path, bytes"
    " sent, memory by part and the network's price. A and B are each the folder of a run, or settings key=value as"
    " rostam run takes them: in quotes where there are several, '' where there are none. Settings after B apply to both"
    " runs, before those of A and B. Nothing is written. rostam run --help lists the keys. Two folders of rostam fleet"
    " with fleet.jobs are compared by waits, goodput, accelerator-hours and price.",
    "import": "Show what each word of a launch file becomes: the keys that it sets, why it is left out, or that it"
    " is not supported; and the rostam run that says the same. Files: arguments of Megatron-LM in a shell script, a"
    " list or YAML; Megatron-Bridge's YAML; torchtitan's TOML, or a script with its registry's name and overrides;"
    " DeepSpeed's JSON and Hugging Face's TrainingArguments; YAML of LLM Foundry and of MaxText. Scripts are read as"
    " text, never run. from.NAME=VALUE sets a variable of the file; other keys are those of rostam run and win. rostam"
    " run from=FILE runs the keys. A Chakra trace, NAME.0.et with those of the other ranks next to it, becomes the"
    " program of out=PROGRAM.json instead.",
    "export": "Write a program on a machine as other simulators read it: chakra, an execution trace of every rank,"
    " PREFIX.RANK.et, and their groups, for to=PREFIX. Other keys are those of rostam run program=FILE. Kernels have"
    " the times that they take on the machine; collectives and messages have their bytes. rostam import reads it back"
    " with equal times.",
    "completion": "Print a script with which your shell completes commands, keys and names as you type them. Put the"
    " first example into ~/.bashrc (for zsh, the same with zsh into ~/.zshrc), the second into"
    " ~/.config/fish/config.fish.",
}
_MULTIRUN = """options
  --multirun  Hydra's multirun: every combination of values given as key=a,b is a separate job with its own run folder
              below out. Hydra's plugins work, for example hydra/launcher=ray after: pip install "rostam[launcher]".
              Prefer rostam sweep where it is enough: it writes one table and a report, and resumes where it stopped."""
# Of a command's keys those that are shown first.
_FIRST_KEYS = {
    "run": (
        "model", "fabric", "accelerator", "software", "global_batch", "strategy.micro_batch", "strategy.dp",
        "strategy.tp", "strategy.pp", "strategy.shard", "strategy.precision", "strategy.recompute", "report", "out",
    ),
}  # fmt: skip
_MANY, _MOST = 4, 12  # keys named after a word from which on none that mention it are added, and in all
WITH_TOPICS = (
    "run",
    "search",
    "fleet",
    "sweep",
    "collective",
    "flows",
    "check",
    "validate",
    "demo",
)  # --help WORD tells of their keys
_OF_TRAINING = ("run", "search", "fleet", "sweep", "compare")  # commands of which help lists words of other programs
_KEY_WIDTH = 40


class _Entry(NamedTuple):
    """A key, what stands left of its meaning (the key with its default), and the meaning."""

    key: str
    left: str
    meaning: str


def print_usage(command: str, overrides: list[str] | None = None) -> None:
    """Print what a command takes; groups chosen by ``overrides`` show their own keys."""
    schema = None if command in _ABOUT else _schema_of(command)
    takes = (
        " [--json] [key=value ...]"
        if schema
        else " [--json]"
        if command in ("list", "cache")
        else " [--json] [key=value ...]"
        if command in ("compare", "import", "export")
        else ""
    )
    print(f"usage: rostam {command}{_ARGUMENTS.get(command, '')}{takes}\n")
    about = _ABOUT[command] if schema is None else (inspect.getdoc(schema) or "").split("\n\n")[0]
    print(textwrap.fill(about, _width()))
    print("\nexamples")
    for example in EXAMPLES.get(command, ()):
        print(f"  {example}")
    _print_more(command)
    if schema is None:
        return
    from rostam_py.cli.schema import groups_of

    chosen = _chosen(overrides or [])
    if first := _FIRST_KEYS.get(command):
        found = {one.key: one for one in _fields(schema, "", chosen)}
        print("\nkeys that most runs need (to find others: --help WORD, for example --help shard or --help fsdp)")
        for key in first:
            _print_entry(found[key].left, found[key].meaning)
    print("\nkeys, defaults and meaning")
    for one in _fields(schema, "", chosen):
        _print_entry(one.left, one.meaning)
    if groups := groups_of(schema):
        _print_groups(chosen, groups)
    if command in _OF_TRAINING:
        _print_words(schema)


def _print_more(command: str) -> None:
    """Print what only one command has."""
    if command == "run":
        print(f"\n{_MULTIRUN}")
    if command == "capture":
        print("\noptions")
        for name, option in OPTIONS.items():
            _print_entry(f"{name} {option.value}", option.meaning)
    if command == "list":
        _print_table("kinds", LIST_KINDS)
    if command == "cache":
        _print_table("actions", CACHE_ACTIONS)
    if command == "reproduce":
        _print_experiments()


def print_topics(command: str, topics: list[str], overrides: list[str]) -> None:
    """Print the keys of a command that words are about: in their names, as another program's words, in their meaning.

    Raises: ConfigError for a word that no key is about.
    """
    from rostam_py.cli.schema import groups_of
    from rostam_py.spec.lookup import is_key

    schema, chosen = _schema_of(command), _chosen(overrides)
    entries = [*_fields(schema, "", chosen)]
    with_keys = [group for group in WITH_SCHEMAS if group in groups_of(schema)]
    entries += [one for group in with_keys for one in _group_fields(group, chosen)]
    entries += _rules() if "software" in with_keys else ()
    for topic in map(_today, topics):
        synonyms = [one for one in meanings_of(topic) if is_key(one.key, schema) or not one.key]
        found = _about(topic, entries, {one.key for one in synonyms or words_like(topic)})
        if not found and not synonyms and (fabrics := _fabrics_with(topic, with_keys)):
            raise ConfigError(f"{topic} is a key of other fabrics: add fabric=NAME, one of {', '.join(fabrics)}")
        if not found and not synonyms:
            near = difflib.get_close_matches(plain(topic), [one.key.rpartition(".")[2] for one in entries], n=3)
            hint = f" (did you mean {' or '.join(dict.fromkeys(near))}?)" if near else ""
            raise ConfigError(f"no key is about {topic!r}{hint}; rostam {command} --help lists all of them")
        print(f"keys of rostam {command} about {topic}")
        for one in synonyms:
            print(f"  {topic} is called {one.said(None)} here" if one.key else f"  {topic}: {one.said(None)}")
        for entry in found:
            _print_entry(entry.left, entry.meaning)


def _today(topic: str) -> str:
    """Return the name of a key that has moved; another word as it is."""
    from rostam_py.plan.machine import HOST_RULES
    from rostam_py.plan.strategy_names import MOVED

    moved = {f"strategy.{name}": key for name, key in MOVED.items()}
    moved |= {f"machine.{name}": f"software.rules.{name}" for name in HOST_RULES}
    return moved.get(topic, topic)


def _about(topic: str, entries: list[_Entry], synonyms: set[str]) -> list[_Entry]:
    """Return the keys that a word is about: what it is called here, those it is a part of, those that mention it.

    Model: a part is whole ("mode" is none of "model"), or else begins one; mentions are added where few are named so.
    """
    word = re.escape(plain(topic)).replace(" ", "_")
    whole, begun = (re.compile(rf"(?:^|[._]){word}{end}") for end in ("(?:$|[._])", ""))
    named = [one for one in entries if one.key in synonyms or whole.search(one.key)]
    named = named or [one for one in entries if begun.search(one.key)]
    if "." in topic or len(named) >= _MANY or (synonyms and not any(synonyms)):
        return named
    mention = re.compile(rf"\b{word.replace('_', ' ')}\b", re.IGNORECASE)
    others = [one for one in entries if one not in named and mention.search(re.sub("[-_]", " ", one.meaning))]
    return [*named, *others[: _MOST - len(named)]]


def _fabrics_with(topic: str, groups: Sequence[str]) -> list[str]:
    """Return the fabrics that have a key of a name."""
    from rostam_py.fabrics import FABRICS

    names = FABRICS.names() if "fabric" in groups else []
    word = plain(topic).removeprefix("fabric.")
    return [name for name in names if word in {entry.name for entry in dataclasses.fields(FABRICS.get(name))}]


def _print_words(schema: Any) -> None:
    """Print what words of other programs are called here."""
    from rostam_py.spec.lookup import is_key

    print("\nkeys for words of Megatron-LM, DeepSpeed, Hugging Face, torchtitan, MaxText and others (* is their value)")
    for text, words in by_key(lambda key: is_key(key, schema)):
        _print_entry(text, ", ".join(words))


def _print_experiments() -> None:
    from rostam_py.reproduction.experiment import experiments_in

    try:
        _print_table("experiments", {name: one.title for name, one in experiments_in().items()})
    except ConfigError as error:  # an installed package has none
        print(f"\nexperiments: {error}")


def _schema_of(command: str) -> Any:
    from rostam_py.cli.schema import command_schema

    return command_schema(command)


def meanings(schema: Any) -> dict[str, str]:
    """Return what a dataclass's docstring, or that of a base, says of each field.

    Model: "name: text" or "name, other: text" at the start of a sentence or line, up to the next one.
    """
    names = [entry.name for entry in dataclasses.fields(schema)]
    one = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    heading = re.compile(rf"(?:^|(?<=[.;:\]]) )((?:{one})(?:, (?:{one}))*)(?: \([^)]*\))?: ")
    found: dict[str, str] = {}
    for owner in inspect.getmro(schema):
        doc = vars(owner).get("__doc__") or ""
        text = " ".join(inspect.cleandoc(doc.split("\n    Source:")[0]).split()).replace("Args: ", "")
        parts = heading.split(text)
        of_owner: dict[str, str] = {}
        for heads, meaning in zip(parts[1::2], parts[2::2], strict=True):
            clean = meaning.strip().rstrip(";")
            for name in heads.split(", "):
                of_owner[name] = f"{of_owner[name]} {clean}" if name in of_owner else clean
        found = of_owner | found
    return found


def _fields(schema: Any, prefix: str, chosen: dict[str, str]) -> Iterator[_Entry]:
    """Yield the keys of a schema, in order."""
    what = meanings(schema)
    given = preset_values("strategy", chosen["strategy"]) if prefix == "strategy." else {}
    for entry in dataclasses.fields(schema):
        default = entry.default
        if entry.default_factory is not dataclasses.MISSING:
            default = entry.default_factory()
        key = f"{prefix}{entry.name}"
        if key in chosen:
            meaning = what.get(entry.name, f"one of the names listed below at {key}=; its own keys are {key}.KEY")
            yield _Entry(key, f"{key}={chosen[key]}", meaning)
            if key in WITH_SCHEMAS:
                continue  # their keys depend on the choice
        if dataclasses.is_dataclass(default):
            yield from _fields(type(default), f"{key}.", chosen)
        elif key not in chosen:
            left = f"{key}={given.get(entry.name, _shown(default))}"
            yield _Entry(key, left, what.get(entry.name, ""))
        for inner, meaning in entry.metadata.get("inner", {}).items():
            yield _Entry(f"{key}.{inner}", f"{key}.{inner}=null", meaning)


def _group_fields(group: str, chosen: dict[str, str]) -> Iterator[_Entry]:
    """Yield the keys of the choice of a group that has keys of its own."""
    name = chosen[group]
    schema = schema_in(group, preset_base(group, name))
    what, given = meanings(schema), preset_values(group, name)
    for entry in dataclasses.fields(schema):
        default = entry.default
        if entry.default_factory is not dataclasses.MISSING:
            default = entry.default_factory()
        value = given.get(entry.name, "???" if default is dataclasses.MISSING else _shown(default))
        key = f"{group}.{entry.name}"
        yield _Entry(key, f"{key}={value}", what.get(entry.name, ""))


def rules() -> Iterator[tuple[str, Any, str]]:
    """Yield every habit of programs that can be set by hand, its default of an ideal one, and what it means."""
    from rostam_py.costs import COST_MODELS
    from rostam_py.plan import Machine, Strategy
    from rostam_py.plan.program_rules import ProgramRules
    from rostam_py.software.stack import RULES

    found: dict[str, tuple[Any, str]] = {}
    for schema in (COST_MODELS.get("calibrated").Config, Strategy, Machine, ProgramRules):
        what = meanings(schema)
        found |= {entry.name: (entry.default, what.get(entry.name, "")) for entry in dataclasses.fields(schema)}
    yield from ((rule, *found[rule]) for rule in RULES)


def _rules() -> Iterator[_Entry]:
    from rostam_py.plan.program_rules import WHERE

    yield from (_Entry(f"{WHERE}.{rule}", f"{WHERE}.{rule}=*", what) for rule, _, what in rules())


def _print_groups(chosen: dict[str, str], groups: list[str]) -> None:
    for group in WITH_SCHEMAS:
        if group not in groups:
            continue
        name = chosen[group]
        base = preset_base(group, name)
        print(f"\nkeys of {group}={name}" + ("" if base == name else f", a preset of {group}={base}"))
        for found in _group_fields(group, chosen):
            _print_entry(found.left, found.meaning)
    for group in groups:
        text = f"{group}= one of: {', '.join(group_choices(group)) or '-'}"
        print("\n" + textwrap.fill(text, _width(), subsequent_indent="  ", break_on_hyphens=False))
    from rostam_py.fabrics.routings import routings

    print(f"\nrouting= one of: {', '.join(f'{name} ({what})' for name, what in routings().items())}")
    print("\nDescriptions: rostam list presets experiments models accelerators convergence fabrics costs software.")
    print("Bandwidths, times and sizes carry a unit: '400 Gb/s', '5 us', '25 MB'.")
    print("Keys with ??? are required; null means not set.")


def _chosen(overrides: list[str]) -> dict[str, str]:
    """Return the choice of every group: as given, else the default."""
    given = default_choices()
    for override in overrides:
        key, _, value = override.partition("=")
        if key in given:
            check_choice(key, [value])
            given[key] = value
    return given


def _print_table(title: str, rows: dict[str, str]) -> None:
    print(f"\n{title}")
    for name, what in rows.items():
        _print_entry(name, what)


def _print_entry(left: str, meaning: str) -> None:
    if len(left) >= _KEY_WIDTH - 2:
        print(f"  {left}")
        left = ""
    indent = " " * _KEY_WIDTH
    lines = textwrap.wrap(meaning, _width() - _KEY_WIDTH, break_on_hyphens=False) or [""]
    print(f"  {left:<{_KEY_WIDTH - 2}}{lines[0]}".rstrip())
    for line in lines[1:]:
        print(f"{indent}{line}")


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    return str(value)


def _width() -> int:
    return max(100, min(140, shutil.get_terminal_size((120, 24)).columns))

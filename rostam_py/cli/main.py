"""The command line: ``rostam COMMAND [options] [key=value ...]``.

User errors print one line and exit with 2, faults of rostam itself exit with 1. Importing this loads nothing heavy.
"""

import contextlib
import gc
import os
import re
import sys
import textwrap
import warnings
from typing import Any

from rostam_py import __version__
from rostam_py.cli.commands import COMMANDS
from rostam_py.errors import DeadlockError, InternalError, RostamError, RostamWarning
from rostam_py.field_words import in_brackets

_HELP = """rostam predicts how long a PyTorch model trains on a machine, even one that does not exist yet, and why

usage: rostam COMMAND [--json] [key=value ...]

commands
  run        simulate one model on one machine: prints tables, writes result.json and, if asked, a timeline
  import     show what each word of a launch script or configuration becomes; rostam run from=FILE runs it
  search     find the strategy and batch with the least time-to-accuracy: estimates all, simulates the best
  fleet      replay weeks with faults: one job's goodput by policy, or a queue of many jobs on one cluster
  sweep      simulate every combination of models, fabrics, bandwidths, ...: one table and a report; can be resumed
  capture    run your own training script on this computer, without a GPU, and write down what its ranks send and run
  collective time one collective over a range of sizes: algorithm and bus bandwidth, as nccl-tests print them
  flows      run the flows of a file, such as a connection matrix: when each is through, by one engine or several
  check      prove that a routing is deadlock-free on a fabric, or show the cycle; compare cables with a plan
  compare    compare two runs: configuration, time by kind, critical path, memory and price
  validate   compare published measurements of training steps, or your own, with rostam's predictions
  reproduce  compare published figures of papers with rostam's, each with a verdict, in one ledger
  report     draw the folder of a sweep or a run: one HTML page that works offline, PDF and SVG figures for papers
  list       list the names of one or several kinds:
{kinds}
  profile    time a model's operators on this machine and save them as a cost table
  cache      list or clear the cached graphs of traced models: rostam cache list | clear
  demo       ResNet-50 and a Transformer on 256 accelerators: best strategies on six fabrics at 0.4 to 8 Tb/s
  completion print a script for completion in your shell: eval "$(rostam completion bash)", or zsh, fish
  help       rostam COMMAND --help lists the keys of a command; rostam run --help fsdp lists the keys about a word

examples
  rostam run model=resnet50
  rostam run model=gpt_1_3b strategy.tp=8 strategy.precision=bf16_mixed global_batch=64
  rostam run model=gpt_1_3b fabric=torus_8x8 fabric.accelerator_bandwidth='800 Gb/s' strategy.tp=8 timeline=true
  rostam run model=path/to/file.py:MyModel fabric=torus fabric.dims=[16,16] failures.links=5
  rostam run experiment=quick
  rostam import train_mixtral.sh
  rostam run from=train_mixtral.sh machine=dgx_h100
  rostam run --multirun model=resnet50,gpt_125m fabric=tree_64,torus_8x8
  rostam search model=transformer_350m fabric=cluster_64 strategy.precision=bf16_mixed
  rostam sweep model=resnet50,gpt_125m fabric=tree_64,torus_8x8 'fabric.accelerator_bandwidth=100 Gb/s,400 Gb/s'
  rostam capture --world 64 -- python train.py
  rostam collective collective=all_reduce ranks=16 sizes.begin='1 MiB'
  rostam flows incast.cm fabric=tree_64 fidelity=[flow,packet]
  rostam check fabric=torus fabric.dims=[8,8] routing=turns failures.links=5%
  rostam compare strategy.tp=2 strategy.tp=8 model=gpt_1_3b global_batch=64
  rostam validate tables=V1,V2
  rostam reproduce --all
  rostam report runs/my_sweep formats=[pdf,svg]
  rostam list fabrics

options
  --json      print the result as JSON instead of tables
  --version   print the version
"""

_INDENT = " " * 13  # of what follows a command's name in _HELP
_USUAL = warnings.formatwarning
_LONG = re.compile(r"\S{500,}")  # a value nobody reads whole, a number of 5,000 digits for example
# When the collector looks for garbage: modules, schemas and graphs are many objects and none, and looking through those
# of GPT-3 at the usual pace takes a tenth of a run.
_SELDOM = (20_000, 20, 100)


def main(argv: list[str] | None = None) -> int:
    """Run one command and return the exit status: 0, 2 for a user error, 1 for a fault of rostam, 130 for Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _print_warnings_as_ours()
    usual = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()  # a full disk behind it is told here
        return status
    except InternalError as error:
        print(f"rostam: internal error, please report it: {error}", file=sys.stderr)
        return 1
    except (RostamError, DeadlockError) as error:
        print(f"rostam: error: {_LONG.sub(_shortened, str(error))}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"rostam: error: this computer does not have enough memory: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, "head" for example, has seen enough
        _give_up_output()
        return 0
    except OSError as error:  # a full disk, a missing permission: the system's, and the user's to mend
        where = f"{error.filename}: " if error.filename else ""
        print(f"rostam: error: {where}{error.strerror or error}", file=sys.stderr)
        _give_up_output()
        return 2
    except KeyboardInterrupt:
        print("rostam: interrupted", file=sys.stderr)
        return 130
    finally:
        gc.set_threshold(*usual)


def _shortened(found: "re.Match[str]") -> str:
    return f"{found[0][:80]}... ({len(found[0]):,} characters)"


def _give_up_output() -> None:
    """Send what is left of the output nowhere, so that the interpreter's end does not try it again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_warnings_as_ours() -> None:
    """Print a RostamWarning as one line, without the place in the code that a user has nothing from."""

    def line(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
        is_ours = issubclass(category, RostamWarning)
        return f"rostam: warning: {message}\n" if is_ours else _USUAL(message, category, *where, **more)

    warnings.formatwarning = line


def _help() -> str:
    from rostam_py.cli.choices import LIST_KINDS

    return _HELP.format(
        kinds=textwrap.fill(", ".join(LIST_KINDS), 110, initial_indent=_INDENT, subsequent_indent=_INDENT)
    )


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and len(arguments) > 1:
        return _dispatch([arguments[1], "--help", *arguments[2:]])
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0
    if arguments[0] == "--version":
        print(f"rostam {__version__}")
        return 0
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        print(f"rostam: error: unknown command {command!r}; commands: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if command == "completion" and rest[:1] == ["query"]:
        return COMMANDS[command].run(rest, False)  # what follows is a line being typed, options and all
    own, program = _split(rest) if COMMANDS[command].takes_program else (rest, [])
    wants_help = any(flag in own for flag in ("-h", "--help"))
    if wants_help:
        from rostam_py.cli.usage import WITH_TOPICS, print_topics, print_usage

        given = [one for one in own if not one.startswith("-")]
        topics = [word for one in given if "=" not in one for word in one.split(",") if word.strip()]
        if topics and command in WITH_TOPICS:
            print_topics(command, topics, [one for one in given if "=" in one])
        else:
            print_usage(command, given)
        return 0
    options = ("--json", "--help", *COMMANDS[command].options)
    unknown = [flag for flag in own if flag.startswith("-") and flag.partition("=")[0] not in options]
    if unknown:
        word, _, value = unknown[0].partition("=")
        told = in_brackets(word, value or None)
        print(f"rostam: error: unknown option {unknown[0]!r}{told}; options: {', '.join(options)}", file=sys.stderr)
        return 2
    return COMMANDS[command].run([one for one in own if one != "--json"] + program, "--json" in own)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return what a command is told, and the program that stands behind "--", that word included."""
    place = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:place], arguments[place:]


if __name__ == "__main__":
    sys.exit(main())

"""gpgmap completion"""

from __future__ import annotations

import argparse
from typing import Any

DESCRIPTION = """Print a shell script that completes gpgmap's commands, options, choices and settings. Pressing
Tab starts no process: everything is in the script."""
EXAMPLES = """examples:
  echo 'source <(gpgmap completion bash)' >> ~/.bashrc
  gpgmap completion zsh > "${fpath[1]}/_gpgmap"       or, after compinit: source <(gpgmap completion zsh)
  gpgmap completion fish > ~/.config/fish/completions/gpgmap.fish
"""
SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.cli.main import build_parser

    parser = build_parser()
    print({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](parser), end="")


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (action,) = [item for item in parser._actions if isinstance(item, argparse._SubParsersAction)]
    return dict(action.choices)


def helps_of(parser: argparse.ArgumentParser) -> dict[str, str]:
    (action,) = [item for item in parser._actions if isinstance(item, argparse._SubParsersAction)]
    return {item.dest: item.help or "" for item in action._choices_actions}


def options_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [item for item in parser._actions if item.option_strings]


def choices_of(action: Any) -> list[str]:
    """What may follow an option, or stand as an argument, where that is a fixed list."""
    if action.dest == "changes":
        from gpgmap_ros.config import settings

        return [f"{item.name}=" for item in settings()]
    return [str(item) for item in action.choices] if action.choices else []


def bash(parser: argparse.ArgumentParser) -> str:
    lines = [
        "# completion of gpgmap for bash: source <(gpgmap completion bash)",
        "_gpgmap() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="" options="" values=""',
        "  local i; for ((i = 1; i < COMP_CWORD; i++)); do",
        '    case "${COMP_WORDS[i]}" in -*) ;; *) command="${COMP_WORDS[i]}"; break ;; esac',
        "  done",
        '  case "$command" in',
    ]
    for name, own in commands_of(parser).items():
        words = " ".join(text for action in options_of(own) for text in action.option_strings)
        lines += [f"    {name})", f'      options="{words}"', '      case "$before" in']
        for action in options_of(own):
            if values := choices_of(action):
                lines.append(f'        {"|".join(action.option_strings)}) values="{" ".join(values)}" ;;')
        fixed = [
            value for action in own._actions if not action.option_strings for value in choices_of(action)
        ]
        if fixed:
            lines.append(f'        {name}) values="{" ".join(fixed)}" ;;')
        lines += ["      esac ;;"]
    names = " ".join(commands_of(parser))
    top = " ".join(text for action in options_of(parser) for text in action.option_strings)
    lines += [
        f'    *) options="{top}"; [[ "$word" == -* ]] || values="{names}" ;;',
        "  esac",
        '  if [[ -n "$values" ]]; then COMPREPLY=($(compgen -W "$values" -- "$word"))',
        '    [[ "${COMPREPLY[0]}" == *= ]] && compopt -o nospace 2>/dev/null',
        '  elif [[ "$word" == -* ]]; then COMPREPLY=($(compgen -W "$options" -- "$word"))',
        '  else compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")); fi',
        "}",
        "complete -F _gpgmap gpgmap",
    ]
    return "\n".join(lines) + "\n"


def zsh(parser: argparse.ArgumentParser) -> str:
    helps = helps_of(parser)
    lines = [
        "#compdef gpgmap",
        "# completion of gpgmap for zsh",
        "_gpgmap() {",
        "  local context state line",
        "  local -a commands",
        "  commands=(",
    ]
    lines += [f"    '{name}:{quote(helps.get(name, ''))}'" for name in commands_of(parser)]
    lines += [
        "  )",
        "  _arguments -C '1: :->command' '*:: :->rest'",
        '  case "$state" in',
        "    command) _describe command commands ;;",
        '    rest) case "$words[1]" in',
    ]
    for name, own in commands_of(parser).items():
        lines.append(f"      {name}) _arguments -s \\")
        for action in options_of(own):
            takes = "" if action.nargs == 0 else f":{(action.metavar or action.dest)}:" + zsh_values(action)
            text = quote(action.help or "").replace("[", "(").replace("]", ")")
            lines += [f"        '*{option}[{text}]{takes}' \\" for option in action.option_strings]
        fixed = [
            value for action in own._actions if not action.option_strings for value in choices_of(action)
        ]
        lines.append(
            f"        '*:argument:({' '.join(fixed)})' ;;" if fixed else "        '*:file:_files' ;;"
        )
    lines += [
        "    esac ;;",
        "  esac",
        "}",
        "# read as a function from fpath it completes; sourced, it says what completes gpgmap",
        'if [[ "$funcstack[1]" == _gpgmap ]]; then _gpgmap "$@"; else compdef _gpgmap gpgmap; fi',
    ]
    return "\n".join(lines) + "\n"


def zsh_values(action: argparse.Action) -> str:
    values = choices_of(action)
    if values and values[0].endswith("="):  # the value follows at once
        return f'{{compadd -S "" - {" ".join(values)}}}'
    return f"({' '.join(values)})" if values else "_files"


def fish(parser: argparse.ArgumentParser) -> str:
    helps = helps_of(parser)
    lines = ["# completion of gpgmap for fish", "complete -c gpgmap -n __fish_use_subcommand -f"]
    for name, own in commands_of(parser).items():
        lines.append(
            f"complete -c gpgmap -n __fish_use_subcommand -a {name} -d '{quote(helps.get(name, ''))}'"
        )
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        for action in options_of(own):
            flags = " ".join(
                f"-l {item[2:]}" if item.startswith("--") else f"-s {item[1:]}"
                for item in action.option_strings
            )
            values = choices_of(action)
            takes = "" if action.nargs == 0 else f" -x -a '{' '.join(values)}'" if values else " -r"
            lines.append(f"complete -c gpgmap {seen} {flags}{takes} -d '{quote(action.help or '')}'")
        fixed = [
            value for action in own._actions if not action.option_strings for value in choices_of(action)
        ]
        if fixed:
            lines.append(f"complete -c gpgmap {seen} -f -a '{' '.join(fixed)}'")
    return "\n".join(lines) + "\n"


def quote(text: str) -> str:
    """Fit for single quotes in any shell."""
    return text.replace("'", "").replace("\\", "").replace(":", " -").replace("%%", "%").replace("\n", " ")

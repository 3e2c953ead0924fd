"""The shells' side of completion: a script for each, and putting it where the shell looks.

They know the program's name and the protocol of ``completion``, nothing else, so they never go out of date. Sourced,
they define one function and register it; ``completions/`` holds them as files for packagers.
"""

from __future__ import annotations

import os
from pathlib import Path

from leap_core.errors import LeapError
from leap_core.system.dataclass import dataclass

from ..framework.environment import Environment

BASH = r"""# bash completion for leap; `leap completion bash --install` puts it where bash finds it.
_leap_completion() {
    local program=${1/#\~/"$HOME"} kind value
    type -P -- "$program" >/dev/null || program=leap
    COMPREPLY=()
    compopt +o default 2>/dev/null
    while IFS=$'\t' read -r kind value _; do
        case $kind in
            plain) COMPREPLY+=("$value") ;;
            file) compopt -o default 2>/dev/null ;;
            dir) compopt -o dirnames 2>/dev/null ;;
        esac
    done < <(_LEAP_COMPLETE=bash _LEAP_LINE=${COMP_LINE:0:COMP_POINT} _LEAP_BREAKS=$COMP_WORDBREAKS \
        "$program" 2>/dev/null </dev/null)
}

complete -o nosort -o default -F _leap_completion leap 2>/dev/null || complete -o default -F _leap_completion leap
"""

ZSH = r"""#compdef leap
# zsh completion for leap; `leap completion zsh --install` puts it where zsh finds it.
_leap_completion() {
    local -a values shown
    local kind value help before=
    local program=${~words[1]} line="${(j: :)words[1,CURRENT-1]} $IPREFIX$QIPREFIX$PREFIX"
    (( $+commands[$program] )) || [[ -x $program ]] || program=leap
    while IFS=$'\t' read -r kind value help; do
        case $kind in
            plain) values+=("$value"); shown+=("$value${help:+  -- $help}") ;;
            file | dir) before=$value; [[ $kind == file ]] && help=-f || help=-/; shown+=($help) ;;
        esac
    done < <(_LEAP_COMPLETE=zsh _LEAP_LINE=$line "$program" 2>/dev/null </dev/null)
    if (( $#values )); then
        compadd -U -V leap -l -d shown -a values
    elif (( $#shown )); then
        [[ -n $before ]] && compset -P "${(b)before}"
        _path_files $shown
    fi
}

if [[ $zsh_eval_context[-1] == (loadautofunc|shfunc) ]]; then  # this file is the function _leap of an fpath
    _leap_completion "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u }
    compdef _leap_completion leap
fi
"""

FISH = r"""# fish completion for leap; `leap completion fish --install` puts it where fish finds it.
function __leap_completion
    set -l program (commandline -opc)[1]
    type -q -- $program; or set program leap
    _LEAP_COMPLETE=fish _LEAP_LINE=(commandline -cp | string collect) $program 2>/dev/null </dev/null |
        while read -l -d \t kind value help
            switch $kind
                case plain
                    printf '%s\t%s\n' $value $help
                case file
                    set -l path (string sub -s (math (string length -- "$value") + 1) -- (commandline -ct))
                    printf '%s\n' $value(__fish_complete_path $path)
                case dir
                    set -l path (string sub -s (math (string length -- "$value") + 1) -- (commandline -ct))
                    printf '%s\n' $value(__fish_complete_directories $path)
            end
        end
end

complete --command leap --erase
complete --command leap --no-files --keep-order --arguments '(__leap_completion)'
"""

POWERSHELL = r"""# PowerShell completion for leap; `leap completion powershell --install` has your profile load it.
Register-ArgumentCompleter -Native -CommandName leap -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $start = $commandAst.Extent.StartOffset
    $line = $commandAst.ToString()
    $length = $cursorPosition - $start
    $line = if ($length -le $line.Length) { $line.Substring(0, $length) } else { $line.PadRight($length) }
    $kept = $env:_LEAP_COMPLETE, $env:_LEAP_LINE
    $env:_LEAP_COMPLETE, $env:_LEAP_LINE = 'powershell', $line
    try {
        $answer = @($null | & $commandAst.CommandElements[0].Extent.Text 2>$null)
    } finally {
        $env:_LEAP_COMPLETE, $env:_LEAP_LINE = $kept
    }

    foreach ($candidate in $answer) {
        $kind, $value, $help = $candidate -split "`t", 3
        if ($kind -eq 'plain') {
            $text = $value
            if ($value -match '[\s''"`$&|;<>(){}@#,]') { $text = "'" + ($value -replace "'", "''") + "'" }
            if (-not $help) { $help = $value }
            [System.Management.Automation.CompletionResult]::new($text, $value, 'ParameterValue', $help)
        } else {
            $begun = if ($wordToComplete.StartsWith($value)) { $wordToComplete.Substring($value.Length) } else { '' }
            $folder = if ($begun -match '^(.*[\\/])') { $Matches[1] } else { '' }
            Get-ChildItem -Path "$begun*" -Directory:($kind -eq 'dir') -ErrorAction SilentlyContinue | ForEach-Object {
                $text = $value + $folder + $_.Name
                if ($text -match '\s') { $text = "'" + ($text -replace "'", "''") + "'" }
                [System.Management.Automation.CompletionResult]::new($text, $_.Name, 'ProviderItem', $_.FullName)
            }
        }
    }
}
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH, "powershell": POWERSHELL}
FILE_NAMES = {"bash": "leap.bash", "zsh": "_leap", "fish": "leap.fish", "powershell": "leap.ps1"}
"""What packagers, and ``leap completion --install``, call them: the names that the shells look for."""


@dataclass(frozen=True)
class ScriptPlace:
    """``script``: the file of the script. ``start_file``: the file with which the shell begins, which has to have
    ``line``; None where the shell finds the script by itself."""

    script: Path
    start_file: Path | None = None
    line: str = ""


def place_of(shell: str, env: Environment) -> ScriptPlace:
    """Where the script of this shell belongs for this user."""
    home = Path(env.variables.get("HOME") or env.variables.get("USERPROFILE") or Path.home())
    if shell == "fish":
        config = Path(env.variables.get("XDG_CONFIG_HOME") or home / ".config")
        return ScriptPlace(config / "fish" / "completions" / FILE_NAMES["fish"])
    script = env.directories.data / "completions" / FILE_NAMES[shell]
    if shell == "powershell":
        return ScriptPlace(script, _powershell_profile(env, home), f'. "{script}"')
    quoted = "'" + str(script).replace("'", "'\\''") + "'"
    start = home / ".bashrc" if shell == "bash" else Path(env.variables.get("ZDOTDIR") or home) / ".zshrc"
    return ScriptPlace(script, start, f"[ -r {quoted} ] && . {quoted}  # completion of leap")


def is_installed(place: ScriptPlace) -> bool:
    """Whether the script is there, and the line that loads it."""
    try:
        return place.script.is_file() and (
            place.start_file is None or os.fsencode(place.line) in place.start_file.read_bytes().splitlines()
        )
    except OSError:
        return False


def install(place: ScriptPlace, shell: str) -> bool:
    """Write the script, and the line that loads it unless it is there. Whether the start file was changed.

    Raises LeapError where something cannot be written.
    """
    from leap_core.system.files import replacing

    try:
        place.script.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place.script) as file:
            file.write(SCRIPTS[shell].encode())
        if place.start_file is None:
            return False
        place.start_file.parent.mkdir(parents=True, exist_ok=True)
        line = os.fsencode(place.line)
        present = place.start_file.read_bytes() if place.start_file.exists() else b""
        if line in present.splitlines():
            return False
        with place.start_file.open("ab") as file:  # appended, so that a link to the user's own file stays one
            file.write((b"" if present.endswith(b"\n") or not present else b"\n") + line + b"\n")
    except OSError as error:
        raise LeapError(
            f"cannot write {error.filename or place.script}: {error.strerror}",
            hint=f"leap completion {shell} prints the script, to be put where you like",
        ) from None
    return True


def _powershell_profile(env: Environment, home: Path) -> Path:
    if os.name == "nt":
        return home / "Documents" / "PowerShell" / "Microsoft.PowerShell_profile.ps1"
    config = Path(env.variables.get("XDG_CONFIG_HOME") or home / ".config")
    return config / "powershell" / "Microsoft.PowerShell_profile.ps1"

"""The shells' side of completion: one script a shell, the same for every version of leap's commands.

They know the program's name and the protocol of ``completion``, nothing else, so they never go out of date. Sourced,
they define one function and register it; ``completions/`` holds them as files for packagers.
"""

from __future__ import annotations

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

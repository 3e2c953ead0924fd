# fish completion for leap; `leap completion fish --install` puts it where fish finds it.
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

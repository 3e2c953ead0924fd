# bash completion for leap; `leap completion bash --install` puts it where bash finds it.
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

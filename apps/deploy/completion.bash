# verbena's completion for bash: it reads what `verbena SUBCOMMAND --help` says, so it never lags behind the command

_verbena_help() {
	"${COMP_WORDS[0]}" "$@" --help 2>/dev/null
}

# The words that an option's help names as its values: "transport: rc, uc or ud (rc)" and its like.
_verbena_values() {
	local subcommand=$1 option=$2
	_verbena_help "$subcommand" | awk -v option="$option" '
		$1 == option { inside = 1; sub(/^ *[^ ]+ +[^ ]+ +/, "") }
		inside && /^  [^ ]/ && !/^ {20}/ && $1 != option && started { exit }
		inside { started = 1; text = text " " $0 }
		END {
			sub(/\(.*/, "", text); sub(/;.*/, "", text); sub(/.*: /, "", text)
			gsub(/,| or /, " ", text)
			print text
		}'
}

_verbena() {
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} subcommand=${COMP_WORDS[1]} i
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W "$(_verbena_help | awk '/^  verbena [a-z-]+ / { print $2 }' | sort -u)" -- "$current"))
		return
	fi
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then # what stands behind it is another command
			if declare -F _command_offset >/dev/null; then
				_command_offset $((i + 1))
			elif ((COMP_CWORD == i + 1)); then
				COMPREPLY=($(compgen -c -- "$current"))
			else
				COMPREPLY=($(compgen -f -- "$current"))
			fi
			return
		fi
	done
	case $previous in
	--device)
		COMPREPLY=($(compgen -W "vhca $("${COMP_WORDS[0]}" devices 2>/dev/null | awk 'NF && !/^ / { print $1 }')" -- "$current")) ;;
	--idle)
		COMPREPLY=($(compgen -W "doze nap" -- "$current")) ;;
	--connection | --op | --profile | --strict | --wire | --for)
		COMPREPLY=($(compgen -W "$(_verbena_values "$subcommand" "$previous")" -- "$current")) ;;
	--json | --report | --trace | --pcap)
		COMPREPLY=($(compgen -f -- "$current")) ;;
	--root)
		COMPREPLY=($(compgen -d -- "$current")) ;;
	*)
		COMPREPLY=($(compgen -W "$(_verbena_help "$subcommand" | grep -oE '^  --[a-z0-9-]+'; [[ $subcommand == vhca ]] && echo status)" -- "$current")) ;;
	esac
}

complete -F _verbena verbena

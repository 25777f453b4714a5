# verbena's completion for bash: it reads what `verbena SUBCOMMAND --help` says, so it never lags behind the command

_verbena_help() {
	"$@" --help 2>/dev/null
}

_verbena_subcommands() {
	_verbena_help "$1" | awk '/^  verbena [a-z]+ / { print $2 }'
}

# What an option's value is called, as "FILE"; nothing where it takes none, or is none.
_verbena_argument() {
	local option=$1
	shift
	_verbena_help "$@" | awk -v option="$option" '$1 == option && /^  -/ { if ($2 ~ /^[A-Z]/ && !/^  --[a-z-]+  /) print $2; exit }'
}

# The words that an option's help names as its values: "transport: rc, uc or ud (rc)", "msgrate or packet: what ...".
_verbena_values() {
	local option=$1
	shift
	_verbena_help "$@" | awk -v option="$option" '
		$1 == option && /^  -/ { inside = 1; sub(/^ *[^ ]+ +[^ ]+ +/, "") }
		inside && /^  [^ ]/ && !/^ {20}/ && $1 != option && started { exit }
		inside { started = 1; text = text " " $0 }
		END {
			gsub(/\([^)]*\)/, "", text); sub(/;.*/, "", text)
			if (text ~ /^ *[a-z]+ or [a-z]+: /) sub(/: .*/, "", text); else sub(/.*: /, "", text)
			gsub(/,| or /, " ", text)
			print text
		}'
}

# The faults, as far as their "=".
_verbena_faults() {
	_verbena_help "$@" | awk '
		/^faults, / { inside = 1; next }
		inside && !/^ / { exit }
		inside && !/^ {20}/ { for (i = 1; i <= NF && ($i ~ /=/ || $i == "torn"); i++) { sub(/=.*/, "=", $i); print $i } }'
}

_verbena_reply() {
	mapfile -t COMPREPLY < <(compgen "$@" | sort -u)
}

# The value of an option of this subcommand. False: it is no option with a value.
_verbena_value() {
	local option=$1 current=$2
	shift 2
	local argument
	case $option in
	--vbn-page-size) _verbena_reply -W "plain transparent 2M 1G" -- "$current" && return ;;
	--vbn-log) _verbena_reply -W "error warning notice info debug" -- "$current" && return ;;
	--vbn-telemetry) _verbena_reply -W "auto on off" -- "$current" && return ;;
	esac
	argument=$(_verbena_argument "$option" "$@")
	[[ $argument ]] || return 1
	case $option in
	--device)
		_verbena_reply -W "vhca $("$1" devices 2>/dev/null | awk 'NR > 1 && NF && !/^ / { print $1 }')" -- "$current" ;;
	--idle)
		_verbena_reply -W "doze nap" -- "$current" ;;
	--fault)
		_verbena_reply -W "$(_verbena_faults "$@")" -- "$current"
		[[ ${COMPREPLY[*]} == *= ]] && compopt -o nospace 2>/dev/null ;;
	--connection | --op | --protocol | --profile | --strict | --wire | --for)
		_verbena_reply -W "$(_verbena_values "$option" "$@")" -- "$current" ;;
	*)
		case $argument in
		FILE*) _verbena_reply -f -- "$current" ;;
		DIR) _verbena_reply -d -- "$current" ;;
		esac ;;
	esac
	return 0
}

_verbena_options() {
	_verbena_help "$@" | grep -oE '^  --[a-z0-9-]+'
	case $2 in # the library's own, of those that start it
	msgrate | latency | devices | fwd | echo | pktgen)
		[[ $current == --v* ]] && echo "--vbn-page-size= --vbn-log= --vbn-telemetry= --vbn-file-prefix= --vbn-metrics=" ;;
	esac
}

# What stands behind "--" is another command; COMP_WORDS[at] is its name.
_verbena_behind() {
	local at=$1
	if ((COMP_CWORD == at)); then
		_verbena_reply -c -- "$current"
	elif [[ ${COMP_WORDS[at]##*/} == verbena ]]; then
		COMP_WORDS=("${COMP_WORDS[@]:at}")
		((COMP_CWORD -= at))
		_verbena
	elif declare -F _command_offset >/dev/null; then
		_command_offset "$at"
	else
		_verbena_reply -f -- "$current"
	fi
}

_verbena() {
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} subcommand=${COMP_WORDS[1]} i
	local command=("${COMP_WORDS[0]}" "$subcommand")
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		_verbena_reply -W "$(_verbena_subcommands "${COMP_WORDS[0]}") --help --version" -- "$current"
		return
	fi
	if [[ $subcommand == help ]]; then
		((COMP_CWORD == 2)) && _verbena_reply -W "$(_verbena_subcommands "${COMP_WORDS[0]}" | grep -vx help)" -- "$current"
		return
	fi
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then
			_verbena_behind $((i + 1))
			return
		fi
	done
	[[ $subcommand == vhca && ${COMP_WORDS[2]} == status && $COMP_CWORD -gt 2 ]] && command+=(status)
	if [[ $current == = ]]; then # readline has it as a word
		current=
	elif [[ $previous == = ]]; then
		previous=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	if [[ $subcommand == fwd && $COMP_CWORD == 2 && $current != -* ]]; then # its first usage line says which
		_verbena_reply -W "$(_verbena_help "${command[@]}" | awk 'NR == 1 { gsub(/\|/, " ", $4); print $4 }')" -- "$current"
		return
	fi
	_verbena_value "$previous" "$current" "${command[@]}" && return
	_verbena_reply -W "$(_verbena_options "${command[@]}"; [[ $subcommand == vhca && $COMP_CWORD == 2 ]] && echo status)" -- "$current"
	[[ ${COMPREPLY[*]} == *= ]] && compopt -o nospace 2>/dev/null
	true
}

complete -F _verbena verbena

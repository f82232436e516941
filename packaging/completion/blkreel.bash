# Completion of blkreel for bash. click's own script splits words at ":" and "=", as in sample:game-load, and prints
# no file names beside other values.

_blkreel()
{
	local cur prev words cword type value
	_get_comp_words_by_ref -n := cur prev words cword || return
	while IFS=, read -r type value; do
		case $type in
		plain) COMPREPLY+=("$value") ;;
		file) compopt -o filenames; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur") ;;
		dir) compopt -o filenames; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$cur") ;;
		esac
	done < <(COMP_WORDS="${words[*]}" COMP_CWORD=$cword _BLKREEL_COMPLETE=bash_complete "$1" 2>/dev/null)
	# A value that ends with one of these is not complete.
	[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:=] ]] && compopt -o nospace
	__ltrim_colon_completions "$cur"
} &&
	complete -F _blkreel blkreel

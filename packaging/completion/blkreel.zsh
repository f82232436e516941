#compdef blkreel
# Completion of blkreel for zsh.

local -a response values described
local type value about
local -i files=1

# Three lines for each value: type, value, description.
response=("${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) _BLKREEL_COMPLETE=zsh_complete $words[1] 2>/dev/null)}")
for type value about in $response; do
	case $type in
	plain) if [[ $about == _ ]]; then values+=($value); else described+=("$value:$about"); fi ;;
	file) _files && files=0 ;;
	dir) _files -/ && files=0 ;;
	esac
done
(( $#described )) && _describe -V values described
(( $#values )) && compadd -V plain -a values
(( $#described + $#values )) || return files

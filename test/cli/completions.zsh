# zsh -f completions.zsh FOLDER LINE: what zsh offers when Tab is pressed after LINE, with FOLDER in its fpath.
# A shell in a pseudo terminal, as a person has it; what is handed to compadd is printed. The last line is the line as
# zsh leaves it, in brackets.
zmodload zsh/zpty
zpty -b shell zsh -f -i
say() { zpty -w shell "$1" }
say "PS1=; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D"
say 'compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return $?; fi
  local -a hits; builtin compadd -A hits "$@"; print -rl -- "" "HIT "${^hits}; builtin compadd "$@"
}'
say 'shown() { print -r -- ""; print -r -- "LINE [$BUFFER]"; zle kill-whole-line }; zle -N shown; bindkey "^X" shown'
say "zstyle ':completion:*' verbose no; unsetopt zle_bracketed_paste; bindkey '^I' complete-word; print REA''DY"
zpty -r -m shell out '*READY*'
zpty -w -n shell "$2"$'\t'$'\x18'
say "print DO''NE"
zpty -r -m shell out '*DONE*'
print -r -- "$out" | tr -d '\r' | grep -o 'HIT .*' | sed 's/^HIT //' | sort -u
print -r -- "$out" | tr -d '\r' | grep -o 'LINE .*' | tail -1
zpty -d shell

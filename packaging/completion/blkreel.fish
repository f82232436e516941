# Completion of blkreel for fish.

function __blkreel_complete
    for line in (env COMP_WORDS=(commandline -cp) COMP_CWORD=(commandline -t) _BLKREEL_COMPLETE=fish_complete blkreel 2>/dev/null)
        set -l fields (string split --max 1 , -- $line)
        switch $fields[1]
            case plain
                echo $fields[2]
            case dir
                __fish_complete_directories (commandline -ct)
            case file
                __fish_complete_path (commandline -ct)
        end
    end
end

complete --no-files --command blkreel --arguments "(__blkreel_complete)"

# Checks of names and programs, for where there is no mount. Runs in an empty directory. Sourced by programs.sh.

names_apart() {
    local here=$PWD outside
    # Taken away with the place that it is in, also if this fails.
    outside=$(mktemp -d -p "$HOME")
    mkdir -p a/b/c && echo text >a/file && (cd a/b && pwd && cat ../file && cd .. && pwd && cat ../a/file)
    # Out of the pool and in again, by `..` and by links, with and without a name of the kernel's in between.
    cat "$here/../../${here#"${here%/*/*}/"}/a/file" && cat "$here/a/../../${here##*/}/a/file"
    ln -s "$here/a" "$outside/in" && cat "$outside/in/file" "$outside/./in/b/../file" && ls "$outside/in/" && (cd "$outside" && cat in/file)
    ln -s "$outside" out && echo there >out/new && cat "$outside/new" out/in/file && ln -s out/in/file around && cat around
    (cd "$outside/in/b" && cat ../file && pwd -P | sed "s|$here|HERE|") && (cd -P out && pwd | grep -c "$outside")
    mkdir -p "${here}//x/./y" && rmdir x/y x && [ "$(readlink -f out/in/file)" = "$here/a/file" ]
    ls -id . | cut -d' ' -f1 >1 && stat -c %i "$here" >2 && cmp 1 2 && rm 1 2
    mv a/file "$outside/moved" && cp "$outside/moved" a/file && ! ln "$outside/moved" a/hard 2>/dev/null
    # Programs and scripts there, by all kinds of names.
    cp /bin/cat mycat && ./mycat a/file && "$here/mycat" a/file && (PATH=$here && mycat a/file) && (cd a && ../mycat file)
    printf '#!/bin/sh\necho script "$0" "$#" "$1"\n' >script && chmod +x script && ./script "two words" && (PATH=$here:$PATH && script | sed "s|$here|HERE|")
    printf '#!%s/mycat -n\nline\n' "$here" >numbered && chmod +x numbered && ./numbered | sed "s|$here|HERE|" && (cd / && "$here/numbered" | sed "s|$here|HERE|")
    printf '#!%s/script\n' "$here" >nested && chmod +x nested && ./nested argument | sed "s|$here|HERE|"
    cp script "$outside/script" && sed -i "1s|.*|#!$here/mycat|" "$outside/script" && "$outside/script" | tail -n 1
    cp script notyet && chmod -x notyet && ! ./notyet 2>/dev/null && [ ! -x notyet ]
    (cd a/b/c && rm -r "$here/a/b" && ! pwd -P 2>/dev/null && ! ls ../x 2>/dev/null && cd "$here" && pwd | sed "s|$here|HERE|")
    cat <a/file && cat /dev/stdin <a/file && cat /proc/self/fd/5 5<a/file && (exec 6>over && echo over >&6 && cat /dev/fd/6) && readlink "/proc/self/cwd" | sed "s|$here|HERE|"
    rm -r out around && rm "$outside/in" && rm -r "$outside"
}

# built PMBENCH: the directory of pmmon and pmm-writer, or the end with 77.
built() {
    bin=$(dirname "$1")
    for program in pmmon pmm-writer; do
        [ -x "$bin/$program" ] || {
            echo "$program is not built beside pmbench (cargo build -p pmmon-cli)"
            exit 77
        }
    done
}

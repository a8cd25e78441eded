# From the output of `cargo test -- --show-output`, or of our own scripts: one line a test,
# "pass NAME", "fail NAME" or "skip NAME: REASON". A test that says "skipped: REASON" has not passed.

/^     Running /                    { flush() }
/^   Doc-tests /                    { flush() }
/^test .* \.\.\. ok$/               { name = test_name($0); result[name] = "pass" }
/^test .* - should panic \.\.\. ok$/ { name = test_name($0); result[name] = "pass" }
/^test .* \.\.\. FAILED$/           { name = test_name($0); result[name] = "fail" }
# A part of another test, which runs it in a process of its own.
/^test .* \.\.\. ignored, run as a child$/ { next }
/^test .* \.\.\. ignored/           { name = test_name($0); result[name] = "skip"; reason[name] = "ignored" }
/^---- .* stdout ----$/             { shown = $2 }
/^skipped: /                        {
    if (shown in result && result[shown] == "pass") {
        result[shown] = "skip"
        reason[shown] = substr($0, 10)
    }
}
/^ok   /                            { print "pass " substr($0, 6) }
/^FAIL /                            { print "fail " substr($0, 6) }
/^skip /                            { print "skip " substr($0, 6) }

END { flush() }

function test_name(line) {
    sub(/^test /, "", line)
    sub(/( - should panic)? \.\.\. .*$/, "", line)
    return line
}

function flush(    name) {
    for (name in result) {
        print result[name] " " name (result[name] == "skip" ? ": " reason[name] : "")
    }
    delete result
    delete reason
    shown = ""
}

use super::*;

#[test]
fn libc() {
    let bytes = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").expect("libc");
    let begun = std::time::Instant::now();
    let image = Image::make(&bytes).expect("an image");
    println!(
        "{:?} {} {:#?}",
        begun.elapsed(),
        image.bytes.len(),
        image.report
    );
}

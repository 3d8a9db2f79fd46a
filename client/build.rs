//! Gives libpfs.so its name for the loader, so that a program keeps to the interface it was linked with.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name| std::env::var(name).unwrap_or_default();
    // Other systems name their libraries in other ways.
    if variable("CARGO_CFG_TARGET_OS") == "linux" {
        let major = variable("CARGO_PKG_VERSION_MAJOR");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpfs.so.{major}");
    }
}

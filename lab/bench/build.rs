//! Sets the environment variable `TERRACE_PROFILE` of the build to the name of its profile.

fn main() {
    // OUT_DIR is TARGET/PROFILE/build/…/out; PROFILE itself is "release" for each profile that inherits from it.
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    let profile = out.split('/').rev().nth(3).expect("it is deep enough");
    println!("cargo::rustc-env=TERRACE_PROFILE={profile}");
    println!("cargo::rerun-if-changed=build.rs");
}

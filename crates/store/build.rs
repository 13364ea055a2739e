//! The migrations are built into the program: one that is added or renamed has the crate built again.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}

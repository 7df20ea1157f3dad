//! The command `unwind`.
fn main() { match unwind_user::bpf::try_load() { Ok(_) => println!("loaded"), Err(e) => println!("{e:?}") } }

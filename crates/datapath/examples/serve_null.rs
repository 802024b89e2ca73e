use datapath::desk::{Ask, Desk, NewDevice, NewSource};
use datapath::{IoChoice, Keeper, Server, ServerConfig};
use units::Bytes;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (dir, tierdir, sock) = (&a[1], &a[2], &a[3]);
    let workers: usize = a.get(4).map_or(1, |s| s.parse().unwrap());
    let measured = a.get(5).is_none_or(|s| s == "on");
    let io = match a.get(6).map(String::as_str) {
        Some("threads") => IoChoice::Threads,
        _ => IoChoice::Auto,
    };
    let dirp = std::path::Path::new(dir);
    let array = match array::Array::open(dirp) {
        Ok(a) => a,
        Err(_) => array::Array::create(dirp, array::ArrayId([7; 16]), Bytes::mib(1)).unwrap(),
    };
    let desk = Desk::offline(Keeper::open(array).unwrap());
    for t in ["fast", "slow"] {
        println!(
            "{:?}",
            desk.ask(Ask::AddDevice(NewDevice {
                tier: t.into(),
                source: NewSource::Dir(tierdir.into()),
                size: Some(Bytes::gib(4)),
                emulate: None
            }))
        );
    }
    println!(
        "{:?}",
        desk.ask(Ask::Create {
            volume: "v".into(),
            size: Bytes::gib(1),
            tier: "fast".into(),
            class: "default".into()
        })
    );
    drop(desk);
    let keeper = Keeper::open(array::Array::open(dirp).unwrap()).unwrap();
    let mut server = Server::start(
        Some(keeper),
        ServerConfig {
            workers,
            measured,
            io,
            ..Default::default()
        },
    )
    .unwrap();
    println!(
        "{:?}",
        server.listen(&format!("unix:{sock}").parse().unwrap())
    );
    let desk = Desk::online(server);
    desk.export("v").unwrap();
    if let Some(t) = a.get(7) {
        std::thread::sleep(std::time::Duration::from_secs(t.parse().unwrap()));
        let mut to = "slow";
        loop {
            println!(
                "{:?}",
                desk.ask(Ask::Move {
                    volume: "v".into(),
                    to: to.into(),
                    bandwidth: units::BytesPerSec(a[8].parse::<u64>().unwrap() << 20)
                })
            );
            std::thread::sleep(std::time::Duration::from_secs(5));
            println!("{:?}", desk.ask(Ask::Show { volume: "v".into() }));
            to = if to == "slow" { "fast" } else { "slow" };
        }
    }
    std::thread::sleep(std::time::Duration::from_secs(3600));
}

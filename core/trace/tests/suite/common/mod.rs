//! Hand-written traces of a few lines, one per format, and functions for larger ones.
use std::io::Cursor;

use model::Op;
use trace::native::{LatencySpill, NativeOptions, NativeWriter};
use trace::{
    Format, LATENCY_UNKNOWN, LoadedTrace, ReadOptions, Record, Request, TraceError, TraceStream,
    load_stream,
};

pub const MSR: &str = "\
128166372003061629,web,0,Read,8192,4096,1331
128166372013061629,web,0,Write,12288,512,700
128166372016382155,sql,1,Write,0,65536,100000
";
pub const DISKMON: &str = "\
0\t1.5\t0.00003815\t0\tWrite\t100\t8\t\r
1\t1.750625\t0.00003815\t1\tRead\t200\t16\t\r
";
pub const HADOOP: &str = "\
time_s,node,op,offset_bytes,size_bytes
3.031770723,2,R,4096,512
5.402708691,6,W,8192,45056
";
pub const CAPTURE: &str = "\
time_ns,volume,op,offset_bytes,length_bytes,latency_ns
0,\"a,b\",R,0,4096,1500
10,c,W,4096,4096,
10,c,F,0,0,900
25,\"a,b\",D,8192,1048576,
";
pub const DISKSIM: &str = "7961.833 0 20228336 8 0\n8346.206 0 6397360 496 1\n\n";
pub const SSDSIM: &str = "0 0 280605840 2 1\n979 0 287641400 128 0\n";
pub const MQSIM: &str = "938513000 4 264719034 16 0\n938828000 3 197570570 16 1";
pub const BYTES_MS: &str = "0.000 0 3242508288 4096 0\n22.810 0 2205343744 512 1\n";
pub const MEASUREMENTS: &str = "\
vm,index,end_us,reads_4k,writes_4k,wss_bytes,read_wss_bytes,write_wss_bytes
a,0,1799000000,1800,1800,8192,4096,8192
a,1,3599000000,0,7,4096,0,4096
";
pub const SPC: &str = "0,20941264,8192,W,0.551706\n1,20939840,512,r,0.554041,more\n";
pub const ALIBABA: &str = "419,W,8192,16384,1577808144360767\n725,R,0,4096,1577808144360769\n";
pub const TENCENT: &str = "1538323200,12910952,128,0,1063\n1538323201,6265688,8,1,7\n";
pub const SYSTOR: &str = "\
Timestamp,Response,IOType,LUN,Offset,Size
1455592511.181391000,0.000221,R,4,1069133824,4096
1455592511.183391000,,W,4,0,8192
";
pub const FIU: &str = "\
329131208190249 4892 syslogd 904265560 8 W 6 0 531e779839b
329131208200249 4892 syslogd 904265568 16 R 8 1 531e779839b 0a
";
pub const FIO2: &str = "\
fio version 2 iolog
/dev/a add
/dev/a open
/dev/b write 8192 4096
/dev/a read 0 512
/dev/a trim 4096 65536
/dev/a datasync 0 0
/dev/a close
";
pub const FIO3: &str =
    "fio version 3 iolog\n28 x add\n181 x read 503808 4096\n538 x write 0 512\n540 x sync 0 0\n";
pub const LIS: &str = "3050771 25 0 0\n100 8 0 1\n";
pub const LIRS: &str = "7\n3\n*\n7\n";
pub const COS: &str = "\
Timestamp Operation Object_ID Size Start_Offset End_Offset
10 REST.PUT.OBJECT 8d4fcda3d675bac9 5000
20 REST.HEAD.OBJECT 8d4fcda3d675bac9 5000
25 REST.PUT.OBJECT ff 100
30 REST.GET.OBJECT 8d4fcda3d675bac9 5000 4096 4999
40 REST.PUT.OBJECT ff 9000
50 REST.GET.OBJECT ff 9000
60 REST.DELETE.OBJECT ff
";
pub const BLKPARSE: &str = "\
  8,16   5        1     0.000000000 18615  A   R 1000 + 8 <- (8,17) 992
  8,16   5        2     0.000001000 18615  Q   R 1000 + 8 [java]
  8,16   5        3     0.000002000 18615  Q  RA 1008 + 8 [java]
  8,16   5        4     0.000003000 18615  P   N [java]
  8,0    5        5     0.000004000 18615  Q  WS 64 + 16 [java]
  8,16   5        0     0.000005000     0  m   N cfq18615S / insert_request
  8,16   5        6     0.000006000 18615  D   R 1000 + 16 [java]
  8,0    1        7     0.000007000 18615  Q FWS [java]
  8,16   5        8     0.000101000     0  C   R 1000 + 16 [0]
  8,0    5        9     0.000104000     0  C  WS 64 + 16 [0]
  8,0    5       10     0.000105000 18615  Q   D 0 + 2048 [java]
CPU5 (sdb):
 Reads Queued:           2,        8KiB
";
pub const BLK_EVENTS: &str = "\
39949 D read 299008 4096 0.000000000 0 False
39949 D write 4096 512 0.000000500 5e-07 True
0 C read 299008 4096 0.000122793 0.000122793 False
";

/// Returns oracleGeneral records: time in s, id, size, next request.
pub fn oracle(records: &[(u32, u64, u32, i64)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (time, id, size, next) in records {
        out.extend(time.to_le_bytes());
        out.extend(id.to_le_bytes());
        out.extend(size.to_le_bytes());
        out.extend(next.to_le_bytes());
    }
    out
}

/// Returns one vscsi record of version 1 or 2.
pub fn vscsi(version: u8, command: u16, length: u32, block: u64, time_us: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let ver = (u16::from(version) << 8).to_le_bytes();
    let head = |out: &mut Vec<u8>| {
        out.extend(7u32.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend(1u32.to_le_bytes());
    };
    if version == 1 {
        head(&mut out);
        out.extend(command.to_le_bytes());
        out.extend(ver);
    } else {
        out.extend(command.to_le_bytes());
        out.extend(ver);
        head(&mut out);
    }
    out.extend(block.to_le_bytes());
    out.extend(time_us.to_le_bytes());
    if version == 2 {
        out.extend(250u64.to_le_bytes());
    }
    out
}

/// Returns three records of a version.
pub fn vscsi_file(version: u8) -> Vec<u8> {
    [
        (0x2a, 512, 100, 5_000_000),
        (0x28, 4096, 8, 5_000_010),
        (0x35, 0, 0, 5_000_020),
    ]
    .into_iter()
    .flat_map(|(command, length, block, time)| vscsi(version, command, length, block, time))
    .collect()
}

/// Returns a small file of every text and binary format.
pub fn corpus() -> Vec<(Format, Vec<u8>)> {
    let text = |format, text: &str| (format, text.as_bytes().to_vec());
    vec![
        text(Format::Msr, MSR),
        text(Format::DiskMon, DISKMON),
        text(Format::HadoopCsv, HADOOP),
        text(Format::Capture, CAPTURE),
        text(Format::DiskSim, DISKSIM),
        text(Format::SsdSim, SSDSIM),
        text(Format::MqSim, MQSIM),
        text(Format::AsciiBytesMs, BYTES_MS),
        text(
            Format::Csv,
            "op;time_us;offset_sectors;size_bytes;disk\nread;7;1;512;x\nW;9;2;1024;y\n",
        ),
        text(Format::Spc, SPC),
        text(Format::Alibaba, ALIBABA),
        text(Format::Tencent, TENCENT),
        text(Format::Systor, SYSTOR),
        text(Format::Fiu, FIU),
        text(Format::Fio2, FIO2),
        text(Format::Fio3, FIO3),
        text(Format::Lis, LIS),
        text(Format::Lirs, LIRS),
        text(Format::IbmCos, COS),
        text(Format::Blkparse, BLKPARSE),
        text(Format::BlkEvents, BLK_EVENTS),
        (
            Format::OracleGeneral,
            oracle(&[(5, 7, 100, 3), (5, 9, 4096, -1), (6, 7, 100, -1)]),
        ),
        (Format::Vscsi1, vscsi_file(1)),
        (Format::Vscsi2, vscsi_file(2)),
    ]
}

pub fn options(format: Option<Format>) -> ReadOptions {
    ReadOptions {
        format,
        ..ReadOptions::default()
    }
}

pub fn read(bytes: &[u8], options: &ReadOptions) -> Result<LoadedTrace, TraceError> {
    load_stream(
        TraceStream::from_reader("file", Cursor::new(bytes.to_vec()), options)?,
        options,
    )
}

/// Row of a trace: `(time_ns, volume, op, offset, length)`.
pub type Row = (u64, u32, Op, u64, u32);

pub fn rows(trace: &LoadedTrace) -> Vec<Row> {
    let row = |r: &Record| {
        (
            r.time_ns,
            r.volume(),
            r.op(),
            r.offset_bytes,
            r.length_bytes,
        )
    };
    trace.records().iter().map(row).collect()
}

pub fn record((time_ns, volume, op, offset_bytes, length_bytes): Row) -> Record {
    Record::new(Request {
        time_ns,
        volume,
        op,
        offset_bytes,
        length_bytes,
    })
}

/// Returns a native trace in memory.
pub fn native(records: &[Record], latencies: Option<&[u64]>, names: &[&str]) -> Vec<u8> {
    let spill = latencies.map_or(LatencySpill::None, |_| LatencySpill::Memory(Vec::new()));
    let options = NativeOptions {
        origin_unix_ns: Some(-5),
        ..NativeOptions::default()
    };
    let mut writer = NativeWriter::new(Cursor::new(Vec::new()), options, spill).unwrap();
    for (i, record) in records.iter().enumerate() {
        let latency = latencies.map(|l| l[i]).filter(|ns| *ns != LATENCY_UNKNOWN);
        writer.push(*record, latency).unwrap();
    }
    let (out, summary) = writer.finish(names.iter().copied()).unwrap();
    assert_eq!(summary.records, records.len() as u64);
    out.into_inner()
}

/// Returns a native trace of four records with two volumes and latencies.
pub fn small_native() -> Vec<u8> {
    let records = [
        (0, 1, Op::Read, 4096, 512),
        (5, 0, Op::Write, 0, 4096),
        (5, 0, Op::Flush, 0, 0),
        (9, 1, Op::Trim, 1 << 40, 1 << 20),
    ];
    native(
        &records.map(record),
        Some(&[100, LATENCY_UNKNOWN, 300, 400]),
        &["boot", "data disk"],
    )
}

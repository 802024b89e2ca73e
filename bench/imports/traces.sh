# Traces of public collections: kinds of requests, headers, times, zones, padding.
mkdir "$dir/traces"
trace() { # NAME OPTION...: the counts of reads, writes and trims, or the word refused
  local name=$1; shift
  if "$terrace" trace info "$dir/traces/$name" -o json "$@" >"$dir/json" 2>"$dir/output"; then
    jq -r '"\(.reads) \(.writes) \(.trims)\(if .format_assumed then " assumed" else "" end)"' "$dir/json"
  else
    echo refused
  fi
}
file() { cat >"$dir/traces/$1"; }

printf 'version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633898,0x28,4096,42932746\n1,5633898,42,4096,8\n' | file scsi.csv
row "SCSI codes, by the header" "1 1 1" "$(trace scsi.csv)"
row "SCSI codes, mapped" "1 1 1" "$(trace scsi.csv --columns time=2:s,op=3:scsi,size=4:bytes,offset=5:sectors)"
row "SCSI codes, given a meaning" "2 1 0" \
  "$(trace scsi.csv --columns 'time=2:s,op=3:read=0x28|42,write=2a,size=4:bytes,offset=5:sectors')"
row "SCSI codes interpreted as flags" refused "$(trace scsi.csv --columns time=2:s,op=3:bit0,size=4:bytes,offset=5:sectors)"
row "  the mapping" named "$(names op=3:read=2a)"
printf 'op_time,block_id,io_offset,io_size,op_name\n100.5,1,0,4096,getChunkData.NotInitialized\n101.5,1,4096,4096,putChunk.NotInitialized\n' | file meta.csv
row "words of an application" "1 1 0" "$(trace meta.csv)"
printf 'time_us,offset_bytes,length_bytes\n1,0,4096\n2,4096,4096\n' | file kinds.csv
row "no column of request kinds" "2 0 0 assumed" "$(trace kinds.csv)"
row "  the way to confirm" named "$(names op=read)"
row "  converted without it" refused "$(outcome "$terrace" trace convert "$dir/traces/kinds.csv" "$dir/traces/kinds.trc")"
row "  confirmed" "2 0 0" "$(trace kinds.csv --columns op=read)"
printf 'time_us,op,offset_bytes,length_bytes\n1,zap,0,4096\n' | file word.csv
row "an unknown word" refused "$(trace word.csv)"
row "  line, column and mapping" named "$(names 'line 2: op "zap": not a known kind of request (read, write, trim or flush) in column 2: map the value with --columns op=2:read=zap')"

printf 'Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n128166372003061629,h,0,Read,383496192,32768,413\n' | file msr.csv
row "header of MSR" "1 0 0" "$(trace msr.csv)"
printf '\xef\xbb\xbf"TIMESTAMP";"Host Name";"Disk Number";type;offset;size;"Response Time"\r\n2024-03-01 12:00:00.002;h;0;Write;0;4096;413\r\n' | file dates.csv
row "header of MSR in another notation, with dates" "0 1 0" "$(trace dates.csv)"
printf 'Timestamp,Response,IOType,LUN,Offset,Size\n1455592511.181391000,0.000221,R,4,1069133824,4096\n1455592511.183391000,,W,4,0,8192\n' | gzip | file systor.csv.gz
row "header of SYSTOR '17, empty response" "1 1 0" "$(trace systor.csv.gz)"
printf 'device_id,opcode,offset,length,timestamp\n419,W,8792731648,16384,1577808144360767\n' | file alibaba.csv
row "header of Alibaba" "0 1 0" "$(trace alibaba.csv)"
printf 'time,op,offset_bytes,size_bytes\n01/03/2024 12:00:00,R,0,4096\n' | file ambiguous.csv
row "a date with day and month" refused "$(trace ambiguous.csv --columns time=1:date)"
row "  the reason" named "$(names ambiguous)"

{
  echo '259,0 1 1 0.000000000 312 Q WS 0 + 8 [a]'
  echo '259,0 1 2 0.000100000 312 Q ZA 524288 + 8 [btrfs]'
  echo '259,0 1 3 0.000200000 312 Q ZR 524288 + 0 [btrfs]'
  echo 'CPU0 (nvme0n1):'
  echo ' Reads Queued:           0,        0KiB'
  echo '259,0 1 4 0.000500000 312 Q WZ 16 + 8 [a]'
} | file zoned.txt
row "blkparse of a zoned device, totals between" "0 2 1" "$(trace zoned.txt)"

for tool in gzip xz zstd; do
  command -v $tool >/dev/null || { echo "skipped: needs $tool"; continue; }
  $tool -c <"$dir/traces/msr.csv" >"$dir/traces/padded.$tool"
  size=$(stat -c %s "$dir/traces/padded.$tool")
  head -c 400 /dev/zero >>"$dir/traces/padded.$tool"
  row "$tool data padded with zeroes" "1 0 0" "$(trace padded.$tool)"
  printf x >>"$dir/traces/padded.$tool"
  row "  and a trailing byte" refused "$(trace padded.$tool)"
  row "  the offset" named "$(names "byte $((size + 400))")"
done

module github.com/tenure-project/tenure/cmd/tenure

go 1.26.0

require github.com/tenure-project/tenure v0.0.0

require github.com/tenure-project/tenure/store/sqlstore v0.0.0

require github.com/tenure-project/tenure/store/stores v0.0.0

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/rogpeppe/go-internal v1.16.0 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/tenure-project/tenure => ../..

replace github.com/tenure-project/tenure/store/sqlstore => ../../store/sqlstore

replace github.com/tenure-project/tenure/store/stores => ../../store/stores
